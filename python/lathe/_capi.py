# Part of Lathe, under the Apache License, version 2.0. See LICENSE.
"""The C API of Lathe: its structs, its functions, and how the shared library is found."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, cast

LIBRARY_NAME = "liblathe.so"
OK = 0
INVALID_ARGUMENT = 2
DIGEST_BYTES = 72

_INT64 = ctypes.c_int64
_INT32 = ctypes.c_int32
_ENUM = ctypes.c_int
_POINTER = ctypes.c_void_p
_DOUBLE = ctypes.c_double


class Workload(ctypes.Structure):
    """lathe_workload."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("hidden", _INT64),
        ("vocab", _INT64),
        ("dtype", _ENUM),
        ("precision", _ENUM),
        ("bias", _INT32),
        ("logit_scale", _INT32),
        ("softcap", _INT32),
        ("nll", _INT32),
        ("logit_means", _INT32),
        ("grad_input", _INT32),
        ("grad_weight", _INT32),
        ("grad_bias", _INT32),
        ("grad_weight_dtype", _ENUM),
        ("sequences", _INT64),
        ("tokens", _INT64),
    )


class Shape(ctypes.Structure):
    """lathe_shape."""

    _fields_ = (("size", ctypes.c_size_t), ("sequences", _INT64), ("tokens", _INT64))


class RuntimeOptions(ctypes.Structure):
    """lathe_runtime_options."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("cache_dir", ctypes.c_char_p),
        ("nvrtc_path", ctypes.c_char_p),
        ("compile_threads", ctypes.c_uint32),
    )


class PlanOptions(ctypes.Structure):
    """lathe_plan_options."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("workspace_limit", _INT64),
        ("chunk_pairs", _INT64),
        ("device", _INT32),
        ("tune", _ENUM),
        ("tune_seconds", ctypes.c_double),
    )


class Diagnostics(ctypes.Structure):
    """lathe_diagnostics."""

    _fields_ = (
        ("valid_tokens", _INT32),
        ("empty_sequences", _INT32),
        ("bad_targets", _INT32),
        ("first_bad_sequence", _INT32),
        ("first_bad_token", _INT32),
    )


class RunArguments(ctypes.Structure):
    """lathe_run_arguments."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("input", _POINTER),
        ("weight", _POINTER),
        ("bias", _POINTER),
        ("target", _POINTER),
        ("beta", _DOUBLE),
        ("gamma", _DOUBLE),
        ("label_smoothing", _DOUBLE),
        ("alpha", _DOUBLE),
        ("softcap", _DOUBLE),
        ("logit_scale", _DOUBLE),
        ("ignore_index", _INT64),
        ("upstream_scale", ctypes.c_float),
        ("upstream", _POINTER),
        ("loss", _POINTER),
        ("preference_loss", _POINTER),
        ("nll", _POINTER),
        ("chosen_logps", _POINTER),
        ("rejected_logps", _POINTER),
        ("chosen_rewards", _POINTER),
        ("rejected_rewards", _POINTER),
        ("chosen_logits_mean", _POINTER),
        ("rejected_logits_mean", _POINTER),
        ("per_token_logps", _POINTER),
        ("diagnostics", _POINTER),
        ("grad_input", _POINTER),
        ("grad_weight", _POINTER),
        ("grad_bias", _POINTER),
        ("accumulate", _INT32),
        ("workspace", _POINTER),
        ("workspace_bytes", _INT64),
    )


def candidates() -> list[Path]:
    """Where the library may be, best first: $LATHE_LIBRARY alone where that is set."""
    named = os.environ.get("LATHE_LIBRARY")
    if named:
        return [Path(named).resolve()]
    package = Path(__file__).resolve().parent
    return [package / LIBRARY_NAME, package.parents[1] / "build" / "release" / "runtime" / LIBRARY_NAME]


def _declare(library: ctypes.CDLL) -> None:
    """Gives every function its types."""
    ref = ctypes.POINTER
    handle = ref(_POINTER)
    run = (_POINTER, ref(RunArguments), _POINTER)
    functions: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "version": (ctypes.c_char_p, ()),
        "last_error": (ctypes.c_char_p, ()),
        "workload_init_sized": (None, (ref(Workload), ctypes.c_size_t)),
        "shape_init_sized": (None, (ref(Shape), ctypes.c_size_t)),
        "runtime_options_init_sized": (None, (ref(RuntimeOptions), ctypes.c_size_t)),
        "plan_options_init_sized": (None, (ref(PlanOptions), ctypes.c_size_t)),
        "run_arguments_init_sized": (None, (ref(RunArguments), ctypes.c_size_t)),
        "workload_digest": (_ENUM, (ref(Workload), ctypes.c_char_p)),
        "runtime_create": (_ENUM, (ref(RuntimeOptions), handle)),
        "runtime_destroy": (None, (_POINTER,)),
        "plan_create": (_ENUM, (_POINTER, ref(Workload), ref(Shape), ref(PlanOptions), handle)),
        "plan_destroy": (None, (_POINTER,)),
        "plan_workspace_bytes": (_INT64, (_POINTER,)),
        "plan_describe": (_ENUM, (_POINTER, handle)),
        "string_free": (None, (_POINTER,)),
        "plan_forward": (_ENUM, run),
        "plan_backward": (_ENUM, run),
        "plan_run": (_ENUM, run),
        "run_on_host": (_ENUM, (ref(Workload), ref(Shape), ref(RunArguments))),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, f"lathe_{name}")
        function.restype = result
        function.argtypes = arguments


@functools.cache
def library() -> ctypes.CDLL:
    """The shared library, loaded once. Raises OSError, naming every place, where there is none."""
    places = candidates()
    for path in places:
        if path.exists():
            loaded = ctypes.CDLL(str(path))
            _declare(loaded)
            return loaded
    raise OSError(
        f"{LIBRARY_NAME} was not found at {', '.join(map(str, places))}; build it (cmake --build build/release), or "
        "set LATHE_LIBRARY to its path"
    )


def last_error() -> str:
    """What the last failing call on this thread said."""
    return cast(bytes, library().lathe_last_error()).decode()
