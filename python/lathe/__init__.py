# Part of Lathe, under the Apache License, version 2.0. See LICENSE.
"""Plans and runs the fused linear + SimPO loss from Python.

A `Runtime` makes `Plan`s, which run on device pointers; `run_on_host` computes the same on the CPU. `lathe.torch` has
the loss as a PyTorch module. Everything is as in lathe.h; this package needs nothing but liblathe.so.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, cast

from lathe import _capi

__all__ = [
    "LatheError",
    "Options",
    "Plan",
    "Runtime",
    "Scalars",
    "Status",
    "Workload",
    "default_runtime",
    "digest",
    "run_on_host",
    "version",
]

DType = Literal["bf16", "fp16", "fp32"]
Precision = Literal["ieee", "tf32"]
_DTYPES = ("bf16", "fp16", "fp32")
_PRECISIONS = ("ieee", "tf32")
_INT64_MAX = 2**63 - 1
_SCALARS = ("beta", "gamma", "label_smoothing", "alpha", "softcap", "logit_scale", "ignore_index")
_POINTERS = frozenset(field[0] for field in _capi.RunArguments._fields_) - {"size", *_SCALARS}


class Status(IntEnum):
    """lathe_status."""

    OK = 0
    INTERNAL = 1
    INVALID_ARGUMENT = 2
    INVALID_WORKLOAD = 3
    UNSUPPORTED = 4
    IO = 5
    CORRUPT = 6
    MISSING_LIBRARY = 7
    COMPILE = 8
    DRIVER = 9
    WORKSPACE = 10


class LatheError(RuntimeError):
    """A call of the C API failed: `status` says how, `message` what was wrong."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.status.name})"


@dataclass(frozen=True)
class Workload:
    """What to compute: everything that is compiled into the kernels."""

    hidden: int
    vocab: int
    dtype: DType = "bf16"
    precision: Precision = "ieee"
    bias: bool = False
    logit_scale: bool = False
    softcap: bool = False
    nll: bool = True
    logit_means: bool = True
    grad_input: bool = True
    grad_weight: bool = True
    grad_bias: bool = False
    grad_weight_dtype: DType | None = None
    """None: `dtype`."""
    sequences: int = 0
    """0: any number at run time."""
    tokens: int = 0
    """0: any number at run time."""


@dataclass(frozen=True)
class Options:
    """What a caller may ask of a plan."""

    workspace_limit: int | None = None
    """The most workspace that the plan may use, in bytes; None: no limit."""
    chunk_pairs: int | None = None
    """Pairs whose exponentials are kept at once; None: chosen by the plan."""
    device: int | None = None
    """Ordinal of the GPU; None: that of the calling thread's current context, else 0."""


@dataclass(frozen=True)
class Scalars:
    """The numbers of the loss, which may change from run to run."""

    beta: float = 0.1
    gamma: float = 0.5
    label_smoothing: float = 0.0
    alpha: float = 1.0
    softcap: float = 0.0
    logit_scale: float = 1.0
    ignore_index: int = -100


def _check(status: int) -> None:
    if status != _capi.OK:
        raise LatheError(Status(status), _capi.last_error())


def _invalid(message: str) -> LatheError:
    return LatheError(Status.INVALID_ARGUMENT, message)


def _index_of(name: str, value: object, choices: tuple[str, ...]) -> int:
    if value not in choices:
        raise _invalid(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
    return choices.index(value)


def _integer(name: str, value: object) -> int:
    """`value`, where it is an integer that the C API can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT64_MAX <= value <= _INT64_MAX:
        raise _invalid(f"{name} is {value!r}; it must be an integer of 64 bits")
    return value


def _workload(workload: Workload) -> _capi.Workload:
    result = _capi.Workload()
    _capi.library().lathe_workload_init_sized(result, ctypes.sizeof(result))
    for name in ("hidden", "vocab", "sequences", "tokens"):
        setattr(result, name, _integer(name, getattr(workload, name)))
    for name in (
        "bias",
        "logit_scale",
        "softcap",
        "nll",
        "logit_means",
        "grad_input",
        "grad_weight",
        "grad_bias",
    ):
        setattr(result, name, int(bool(getattr(workload, name))))
    result.dtype = _index_of("dtype", workload.dtype, _DTYPES)
    result.precision = _index_of("precision", workload.precision, _PRECISIONS)
    result.grad_weight_dtype = _index_of("grad_weight_dtype", workload.grad_weight_dtype or workload.dtype, _DTYPES)
    return result


def _shape(sequences: int, tokens: int) -> _capi.Shape:
    result = _capi.Shape()
    _capi.library().lathe_shape_init_sized(result, ctypes.sizeof(result))
    result.sequences = _integer("sequences", sequences)
    result.tokens = _integer("tokens", tokens)
    return result


def _plan_options(options: Options) -> _capi.PlanOptions:
    result = _capi.PlanOptions()
    _capi.library().lathe_plan_options_init_sized(result, ctypes.sizeof(result))
    for name, least in (("workspace_limit", 1), ("chunk_pairs", 1), ("device", 0)):
        value = getattr(options, name)
        if value is None:
            continue
        if _integer(name, value) < least:
            raise _invalid(f"{name} is {value}; it must be {least} or more, or None")
        setattr(result, name, value)
    return result


def _arguments(scalars: Scalars, pointers: dict[str, int]) -> _capi.RunArguments:
    """`pointers`: addresses by the names of lathe_run_arguments, with workspace_bytes and accumulate among them."""
    result = _capi.RunArguments()
    _capi.library().lathe_run_arguments_init_sized(result, ctypes.sizeof(result))
    for name in _SCALARS:
        setattr(result, name, getattr(scalars, name))
    for name, value in pointers.items():
        if name not in _POINTERS:
            raise _invalid(f"{name} is no argument of a run; lathe.h names them in lathe_run_arguments")
        setattr(result, name, value)
    return result


def _release(owner: int, destroy: Callable[[Any], None], handle: int) -> None:
    # What a forked process inherits belongs to its parent: threads and contexts are not there any more.
    if os.getpid() == owner:
        destroy(handle)


class Plan:
    """The kernels for one workload, shape and device. Made by `Runtime.plan`."""

    def __init__(self, handle: int) -> None:
        library = _capi.library()
        self._handle = handle
        weakref.finalize(self, _release, os.getpid(), library.lathe_plan_destroy, handle).atexit = False
        self.workspace_bytes = int(library.lathe_plan_workspace_bytes(handle))
        """Device memory that a run needs besides inputs and outputs."""

    def describe(self) -> str:
        """Steps, kernels, configs, FLOPs, bytes and workspace as JSON."""
        library = _capi.library()
        text = ctypes.c_void_p()
        _check(library.lathe_plan_describe(self._handle, text))
        try:
            return ctypes.string_at(cast(int, text.value)).decode()
        finally:
            library.lathe_string_free(text)

    def forward(self, scalars: Scalars, stream: int, **pointers: int) -> None:
        """Enqueues the loss on `stream`. `pointers` are device addresses by the names of lathe_run_arguments."""
        _check(_capi.library().lathe_plan_forward(self._handle, _arguments(scalars, pointers), stream))

    def backward(self, scalars: Scalars, stream: int, **pointers: int) -> None:
        """Enqueues the gradients on `stream`, after `forward` with the same inputs, scalars and workspace."""
        _check(_capi.library().lathe_plan_backward(self._handle, _arguments(scalars, pointers), stream))

    def run(self, scalars: Scalars, stream: int, **pointers: int) -> None:
        """Enqueues the loss and the gradients on `stream`."""
        _check(_capi.library().lathe_plan_run(self._handle, _arguments(scalars, pointers), stream))


class Runtime:
    """Makes plans and keeps them. May be used from several threads, and on both sides of a fork: a forked process
    makes a runtime and plans of its own. Nothing is loaded before the first plan is made."""

    def __init__(
        self,
        cache_dir: str | None = None,
        nvrtc_path: str | None = None,
        compile_threads: int | None = None,
    ) -> None:
        """None: from the environment; for `compile_threads`, as many as there are processors."""
        if compile_threads is not None and not 0 < _integer("compile_threads", compile_threads) < 2**32:
            raise _invalid(f"compile_threads is {compile_threads}; it must be 1 or more, or None")
        self._settings = (cache_dir, nvrtc_path, compile_threads)
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._plans: dict[tuple[Workload, int, int, Options], Plan] = {}

    def plan(self, workload: Workload, sequences: int, tokens: int, options: Options | None = None) -> Plan:
        """Makes a plan, or returns the one made before for the same arguments."""
        if self._owner != os.getpid():
            self._reset()
        key = (workload, sequences, tokens, options or Options())
        found = self._plans.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                found = self._plans[key] = self._make(*key)
            return found

    def _make(self, workload: Workload, sequences: int, tokens: int, options: Options) -> Plan:
        c_workload, c_shape, c_options = _workload(workload), _shape(sequences, tokens), _plan_options(options)
        plan = ctypes.c_void_p()
        status = _capi.library().lathe_plan_create(self._created(), c_workload, c_shape, c_options, plan)
        _check(status)
        return Plan(cast(int, plan.value))

    def _created(self) -> int:
        if self._handle is None:
            library = _capi.library()
            options = _capi.RuntimeOptions()
            library.lathe_runtime_options_init_sized(options, ctypes.sizeof(options))
            cache_dir, nvrtc_path, compile_threads = self._settings
            options.cache_dir = os.fsencode(cache_dir) if cache_dir is not None else None
            options.nvrtc_path = os.fsencode(nvrtc_path) if nvrtc_path is not None else None
            options.compile_threads = compile_threads or 0
            handle = ctypes.c_void_p()
            _check(library.lathe_runtime_create(options, handle))
            self._handle = cast(int, handle.value)
            weakref.finalize(self, _release, self._owner, library.lathe_runtime_destroy, self._handle).atexit = False
        return self._handle

    def __reduce__(self) -> tuple[type[Runtime], tuple[str | None, str | None, int | None]]:
        return (Runtime, self._settings)


_DEFAULT = Runtime()


def default_runtime() -> Runtime:
    """The runtime of this process, set up from the environment."""
    return _DEFAULT


def run_on_host(workload: Workload, sequences: int, tokens: int, scalars: Scalars, **pointers: int) -> None:
    """Computes the same on the CPU in double precision. `pointers` are host addresses by the names of
    lathe_run_arguments; gradients are asked for by theirs. Returns when the results are there."""
    _check(
        _capi.library().lathe_run_on_host(_workload(workload), _shape(sequences, tokens), _arguments(scalars, pointers))
    )


def digest(workload: Workload) -> str:
    """The workload digest: `sha256:` and 64 digits."""
    text = ctypes.create_string_buffer(_capi.DIGEST_BYTES)
    _check(_capi.library().lathe_workload_digest(_workload(workload), text))
    return text.value.decode()


def version() -> str:
    """`major.minor.patch` of the shared library."""
    return cast(bytes, _capi.library().lathe_version()).decode()
