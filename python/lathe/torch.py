# Part of Lathe, under the Apache License, version 2.0. See LICENSE.
"""The fused linear + SimPO loss as a PyTorch module and function.

The module can take the place of Liger-Kernel's LigerFusedLinearSimPOLoss. On CUDA tensors the kernels run on PyTorch's
current stream and nothing waits for the GPU; on CPU tensors the loss is computed in double precision, slowly, for
tests. The first call for a shape makes a plan, which may compile kernels: make it before capturing a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

import lathe
from lathe import DType, Options, Precision, Scalars, Workload

__all__ = ["FusedLinearSimPOLoss", "fused_linear_simpo_loss"]

_DTYPES: dict[torch.dtype, DType] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
_TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}
_STRATEGIES = (None, "stored", "chunked")
_ALIGNMENT = 16
_BY_PAIR = ("chosen_logps", "rejected_logps", "chosen_rewards", "rejected_rewards")
_TOTALS = ("chosen_logits_mean", "rejected_logits_mean", "nll")

Auxiliary = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

# ---------------------------------------------------------------------------------------------------------------------
# The operators
#
# `lathe::fused_linear_simpo` returns the loss, the results of each pair, those of the whole batch, and the workspace
# that `lathe::fused_linear_simpo_backward` takes up. Both take what _Settings holds after their tensors. The backward
# operator spends the workspace; where `spent` says that this has happened, it starts over in another.
# ---------------------------------------------------------------------------------------------------------------------

_SETTINGS_SCHEMA = (
    "float beta, float gamma, float label_smoothing, float alpha, int ignore_index, float? softcap, "
    "float? logit_scale, bool nll, bool grad_input, bool grad_weight, bool grad_bias, str precision, "
    "str grad_weight_dtype, int? workspace_limit, int? chunk_pairs"
)
_FORWARD_SCHEMA = (
    f"(Tensor input, Tensor weight, Tensor target, Tensor? bias, {_SETTINGS_SCHEMA}) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD_SCHEMA = (
    "(Tensor upstream, Tensor input, Tensor weight, Tensor target, Tensor? bias, Tensor workspace, bool spent, "
    f"{_SETTINGS_SCHEMA}) -> (Tensor, Tensor, Tensor)"
)


@dataclass(frozen=True)
class _Settings:
    """Everything that is no tensor, in the order of _SETTINGS_SCHEMA."""

    beta: float
    gamma: float
    label_smoothing: float
    alpha: float
    ignore_index: int
    softcap: float | None
    logit_scale: float | None
    nll: bool
    grad_input: bool
    grad_weight: bool
    grad_bias: bool
    precision: str
    grad_weight_dtype: str
    workspace_limit: int | None
    chunk_pairs: int | None

    @property
    def any_gradient(self) -> bool:
        return self.grad_input or self.grad_weight or self.grad_bias

    def scalars(self) -> Scalars:
        return Scalars(
            beta=self.beta,
            gamma=self.gamma,
            label_smoothing=self.label_smoothing,
            alpha=self.alpha,
            softcap=self.softcap or 0.0,
            logit_scale=1.0 if self.logit_scale is None else self.logit_scale,
            ignore_index=self.ignore_index,
        )

    def workload(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Workload:
        dtype = _DTYPES[input.dtype]
        return Workload(
            hidden=weight.shape[1],
            vocab=weight.shape[0],
            dtype=dtype,
            precision=cast(Precision, self.precision) if dtype == "fp32" else "ieee",
            bias=bias is not None,
            logit_scale=self.logit_scale is not None,
            softcap=self.softcap is not None,
            nll=self.nll,
            grad_input=self.grad_input,
            grad_weight=self.grad_weight,
            grad_bias=self.grad_bias,
            grad_weight_dtype=cast(DType, self.grad_weight_dtype) if self.grad_weight else dtype,
        )

    def options(self, pairs: int, device: torch.device) -> Options:
        chunk_pairs = self.chunk_pairs if self.any_gradient else None
        return Options(
            workspace_limit=self.workspace_limit,
            chunk_pairs=None if chunk_pairs is None else max(1, min(chunk_pairs, pairs)),
            device=torch.cuda.current_device() if device.index is None else device.index,
        )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as Lathe reads it: contiguous, and aligned."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def _dense_inputs(
    input: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    return _dense(input), _dense(weight), _dense(target), None if bias is None else _dense(bias)


def _plan(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, settings: _Settings) -> lathe.Plan:
    sequences, tokens = input.shape[:2]
    workload = settings.workload(input, weight, bias)
    # The plan takes the context of the device that is current.
    with torch.cuda.device(input.device):
        return lathe.default_runtime().plan(workload, sequences, tokens, settings.options(sequences // 2, input.device))


def _addresses(**tensors: torch.Tensor | None) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}


def _stream(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def _result_addresses(by_pair: torch.Tensor, totals: torch.Tensor) -> dict[str, int]:
    """Where each of the results goes: a row of `by_pair`, or an element of `totals`."""
    addresses = {name: by_pair.data_ptr() + 4 * by_pair.shape[1] * row for row, name in enumerate(_BY_PAIR)}
    return addresses | {name: totals.data_ptr() + 4 * index for index, name in enumerate(_TOTALS)}


def _auxiliary(by_pair: torch.Tensor, totals: torch.Tensor) -> Auxiliary:
    chosen_logps, rejected_logps, chosen_rewards, rejected_rewards = by_pair.unbind(0)
    chosen_mean, rejected_mean, nll = totals.unbind(0)
    return chosen_logps, rejected_logps, chosen_mean, rejected_mean, nll, chosen_rewards, rejected_rewards


def _forward(
    input: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    settings = _Settings(*rest)
    input, weight, target, bias = _dense_inputs(input, weight, target, bias)
    sequences, tokens = input.shape[:2]
    loss = input.new_empty((), dtype=torch.float32)
    by_pair = input.new_empty((len(_BY_PAIR), sequences // 2), dtype=torch.float32)
    totals = input.new_zeros(len(_TOTALS), dtype=torch.float32)
    workspace = input.new_empty(0, dtype=torch.uint8)
    addresses = _addresses(input=input, weight=weight, target=target, bias=bias, loss=loss)
    addresses |= _result_addresses(by_pair, totals)
    if input.device.type == "cpu":
        lathe.run_on_host(settings.workload(input, weight, bias), sequences, tokens, settings.scalars(), **addresses)
        return loss, by_pair, totals, workspace
    plan = _plan(input, weight, bias, settings)
    scratch = input.new_empty(plan.workspace_bytes, dtype=torch.uint8)
    plan.forward(
        settings.scalars(),
        _stream(input.device),
        workspace=scratch.data_ptr(),
        workspace_bytes=plan.workspace_bytes,
        **addresses,
    )
    return loss, by_pair, totals, scratch if settings.any_gradient else workspace


def _gradients(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, settings: _Settings
) -> dict[str, torch.Tensor]:
    """Uninitialised gradients; those that are not wanted are empty."""

    def like(tensor: torch.Tensor, wanted: bool, dtype: torch.dtype) -> torch.Tensor:
        return tensor.new_empty(tensor.shape if wanted else (0,), dtype=dtype)

    return {
        "grad_input": like(input, settings.grad_input, input.dtype),
        "grad_weight": like(weight, settings.grad_weight, _TORCH_DTYPES[cast(DType, settings.grad_weight_dtype)]),
        "grad_bias": like(input if bias is None else bias, settings.grad_bias, input.dtype),
    }


def _backward(
    upstream: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    workspace: torch.Tensor,
    spent: bool,
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    settings = _Settings(*rest)
    input, weight, target, bias = _dense_inputs(input, weight, target, bias)
    sequences, tokens = input.shape[:2]
    gradients = _gradients(input, weight, bias, settings)
    wanted = {name: gradient for name, gradient in gradients.items() if getattr(settings, name)}
    upstream = upstream.to(torch.float32).contiguous()
    addresses = _addresses(input=input, weight=weight, target=target, bias=bias, upstream=upstream, **wanted)
    if input.device.type == "cpu":
        lathe.run_on_host(settings.workload(input, weight, bias), sequences, tokens, settings.scalars(), **addresses)
        return tuple(gradients.values())
    plan = _plan(input, weight, bias, settings)
    scratch = torch.empty_like(workspace) if spent else workspace
    run = plan.run if spent else plan.backward
    run(
        settings.scalars(),
        _stream(input.device),
        workspace=scratch.data_ptr(),
        workspace_bytes=plan.workspace_bytes,
        **addresses,
    )
    return tuple(gradients.values())


def _workspace_bytes(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, settings: _Settings) -> Any:
    """The size of the workspace that `_forward` returns: a number, or a symbol where the shape has symbols."""
    if not settings.any_gradient or input.device.type != "cuda":
        return 0
    if all(isinstance(size, int) for size in (*input.shape, *weight.shape)):
        return _plan(input, weight, bias, settings).workspace_bytes
    return torch.library.get_ctx().new_dynamic_size()


def _fake_forward(
    input: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    settings = _Settings(*rest)
    return (
        input.new_empty((), dtype=torch.float32),
        input.new_empty((len(_BY_PAIR), input.shape[0] // 2), dtype=torch.float32),
        input.new_empty(len(_TOTALS), dtype=torch.float32),
        input.new_empty(_workspace_bytes(input, weight, bias, settings), dtype=torch.uint8),
    )


def _fake_backward(
    upstream: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    workspace: torch.Tensor,
    spent: bool,
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    return tuple(_gradients(input, weight, bias, _Settings(*rest)).values())


def _setup_context(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:
    input, weight, target, bias, *rest = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(input, weight, target, bias, output[3])
    ctx.settings = tuple(rest)
    ctx.spent = False


def _autograd(ctx: Any, upstream: torch.Tensor | None, *_: torch.Tensor | None) -> tuple[Any, ...]:
    none = (None,) * len(ctx.settings)
    settings = _Settings(*ctx.settings)
    if upstream is None or not settings.any_gradient:
        return (None, None, None, None, *none)
    input, weight, target, bias, workspace = ctx.saved_tensors
    grad_input, grad_weight, grad_bias = torch.ops.lathe.fused_linear_simpo_backward(
        upstream, input, weight, target, bias, workspace, ctx.spent, *ctx.settings
    )
    ctx.spent = True
    return (
        grad_input if settings.grad_input else None,
        grad_weight if settings.grad_weight else None,
        None,
        grad_bias if settings.grad_bias else None,
        *none,
    )


def _no_second_derivative(ctx: Any, *_: Any) -> Any:
    raise RuntimeError(
        "the fused linear + SimPO loss can be differentiated once only; a second derivative was asked for "
        "(create_graph=True)"
    )


_FORWARD = torch.library.custom_op(
    "lathe::fused_linear_simpo", cast(Any, _forward), mutates_args=(), schema=_FORWARD_SCHEMA
)
_FORWARD.register_fake(_fake_forward)
_FORWARD.register_autograd(_autograd, setup_context=_setup_context)
_BACKWARD = torch.library.custom_op(
    "lathe::fused_linear_simpo_backward", cast(Any, _backward), mutates_args=(), schema=_BACKWARD_SCHEMA
)
_BACKWARD.register_fake(_fake_backward)
_BACKWARD.register_autograd(_no_second_derivative)

# ---------------------------------------------------------------------------------------------------------------------
# The function and the module
# ---------------------------------------------------------------------------------------------------------------------


def _check_tensors(
    lin_weight: torch.Tensor, input: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None
) -> None:
    """Raises ValueError unless the shapes, dtypes and devices fit each other."""
    if input.dim() != 3:
        raise ValueError(f"input has {input.dim()} dimensions; it must be [sequences, tokens, hidden]")
    sequences, tokens, hidden = input.shape
    if sequences % 2 != 0 or sequences == 0:
        raise ValueError(f"input has {sequences} sequences; it must have an even number, the chosen ones first")
    if tokens == 0:
        raise ValueError("input has no tokens")
    if lin_weight.dim() != 2 or lin_weight.shape[1] != hidden:
        raise ValueError(f"lin_weight is {list(lin_weight.shape)}; with this input it must be [vocabulary, {hidden}]")
    if target.dim() != 2 or target.shape[0] != sequences or target.shape[1] != tokens:
        raise ValueError(f"target is {list(target.shape)}; with this input it must be [{sequences}, {tokens}]")
    if target.dtype != torch.int64:
        raise ValueError(f"target is {target.dtype}; it must be torch.int64")
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != lin_weight.shape[0]):
        raise ValueError(f"bias is {list(bias.shape)}; with this lin_weight it must be [{lin_weight.shape[0]}]")
    if input.dtype not in _DTYPES:
        raise ValueError(f"input is {input.dtype}; it must be torch.bfloat16, torch.float16 or torch.float32")
    if input.device.type not in ("cuda", "cpu"):
        raise ValueError(f"input is on {input.device}; it must be on a CUDA device, or on the CPU")
    for name, tensor in (("lin_weight", lin_weight), ("target", target), ("bias", bias)):
        if tensor is None:
            continue
        if name != "target" and tensor.dtype != input.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, but input is {input.dtype}; they must be the same")
        if tensor.device != input.device:
            raise ValueError(f"{name} is on {tensor.device}, but input is on {input.device}; they must be the same")


def _check_settings(
    beta: float,
    gamma: float,
    label_smoothing: float,
    alpha: float,
    softcap: float | None,
    logit_scale: float | None,
    chunk_size: int,
    workspace_limit: int | None,
    strategy: str | None,
    precision: str,
    grad_weight_dtype: torch.dtype | None,
) -> None:
    """Raises ValueError for a value that makes no sense."""
    numbers = {"beta": beta, "gamma": gamma, "alpha": alpha, "label_smoothing": label_smoothing}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}; it must be finite")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}; it must be from 0 to 1")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ValueError(f"softcap is {softcap}; it must be more than 0, or None")
    if logit_scale is not None and not math.isfinite(logit_scale):
        raise ValueError(f"logit_scale is {logit_scale}; it must be finite, or None")
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; it must be 1 or more")
    if workspace_limit is not None and workspace_limit < 1:
        raise ValueError(f"workspace_limit is {workspace_limit}; it must be 1 or more bytes, or None")
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; it must be 'stored', 'chunked' or None")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision is {precision!r}; it must be 'ieee' or 'tf32'")
    if grad_weight_dtype is not None and grad_weight_dtype not in _DTYPES:
        raise ValueError(f"grad_weight_dtype is {grad_weight_dtype}; it must be torch.float32 or None")


def _autocast(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in the dtype of the autocast region that this is in, if any."""
    device = tensor.device.type
    if device not in ("cuda", "cpu") or not torch.is_autocast_enabled(device) or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def fused_linear_simpo_loss(
    lin_weight: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None = None,
    ignore_index: int = -100,
    beta: float = 0.1,
    alpha: float = 1.0,
    label_smoothing: float = 0.0,
    compute_nll_loss: bool = True,
    gamma: float = 0.5,
    chunk_size: int = 1,
    *,
    softcap: float | None = None,
    logit_scale: float | None = None,
    workspace_limit: int | None = None,
    strategy: str | None = None,
    precision: str = "ieee",
    grad_weight_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, Auxiliary]:
    """The loss and (chosen_logps, rejected_logps, chosen_logits_mean, rejected_logits_mean, nll_loss, chosen_rewards,
    rejected_rewards). Everything is fp32; only the loss has a gradient. See FusedLinearSimPOLoss."""
    _check_settings(
        beta,
        gamma,
        label_smoothing,
        alpha,
        softcap,
        logit_scale,
        chunk_size,
        workspace_limit,
        strategy,
        precision,
        grad_weight_dtype,
    )
    input, lin_weight = _autocast(input), _autocast(lin_weight)
    bias = None if bias is None else _autocast(bias)
    _check_tensors(lin_weight, input, target, bias)
    recording = torch.is_grad_enabled()
    dtype = input.dtype if grad_weight_dtype is None else grad_weight_dtype
    if dtype not in (input.dtype, torch.float32):
        raise ValueError(f"grad_weight_dtype is {dtype}; with this input it must be {input.dtype} or torch.float32")
    chunk_pairs = {None: None, "stored": 2**31 - 1, "chunked": chunk_size}[strategy]
    loss, by_pair, totals, _ = torch.ops.lathe.fused_linear_simpo(
        input.contiguous(),
        lin_weight.contiguous(),
        target.contiguous(),
        None if bias is None else bias.contiguous(),
        float(beta),
        float(gamma),
        float(label_smoothing),
        float(alpha),
        ignore_index,
        softcap,
        logit_scale,
        compute_nll_loss,
        recording and input.requires_grad,
        recording and lin_weight.requires_grad,
        recording and bias is not None and bias.requires_grad,
        precision,
        _DTYPES[dtype],
        workspace_limit,
        chunk_pairs,
    )
    return loss, _auxiliary(by_pair.detach(), totals.detach())


class FusedLinearSimPOLoss(torch.nn.Module):  # type: ignore[misc]
    """The loss of `fused_linear_simpo_loss` with fixed settings. Arguments are those of LigerFusedLinearSimPOLoss; the
    keyword-only ones are Lathe's own.

    Args:
        ignore_index: target of tokens that do not count.
        beta, alpha, label_smoothing, gamma: numbers of the loss, as README.md defines them.
        compute_nll_loss: False leaves the negative log-likelihood out of the loss.
        compiled: has no effect; kernels are always compiled.
        chunk_size: pairs in a chunk, with strategy "chunked".
        softcap: caps the logits at c tanh(z / c).
        logit_scale: factor of the logits.
        workspace_limit: the most device memory, in bytes, that the loss may keep for its gradient.
        strategy: "stored" keeps all exponentials, "chunked" those of `chunk_size` pairs; None lets the plan choose.
        precision: "ieee" or "tf32" products of fp32 tensors.
        grad_weight_dtype: torch.float32 computes the gradient of a 16-bit weight in fp32; autograd rounds it to the
            dtype of the weight unless the weight's `grad_dtype` says otherwise.
    """

    def __init__(
        self,
        ignore_index: int = -100,
        beta: float = 0.1,
        alpha: float = 1.0,
        label_smoothing: float = 0.0,
        compute_nll_loss: bool = True,
        compiled: bool = True,
        gamma: float = 0.5,
        chunk_size: int = 1,
        *,
        softcap: float | None = None,
        logit_scale: float | None = None,
        workspace_limit: int | None = None,
        strategy: str | None = None,
        precision: str = "ieee",
        grad_weight_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_settings(
            beta,
            gamma,
            label_smoothing,
            alpha,
            softcap,
            logit_scale,
            chunk_size,
            workspace_limit,
            strategy,
            precision,
            grad_weight_dtype,
        )
        self.ignore_index = ignore_index
        self.beta = beta
        self.alpha = alpha
        self.label_smoothing = label_smoothing
        self.compute_nll_loss = compute_nll_loss
        self.compiled = compiled
        self.gamma = gamma
        self.chunk_size = chunk_size
        self.softcap = softcap
        self.logit_scale = logit_scale
        self.workspace_limit = workspace_limit
        self.strategy = strategy
        self.precision = precision
        self.grad_weight_dtype = grad_weight_dtype

    def forward(
        self,
        lin_weight: torch.Tensor,
        input: torch.Tensor,
        target: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Auxiliary]:
        return fused_linear_simpo_loss(
            lin_weight,
            input,
            target,
            bias,
            self.ignore_index,
            self.beta,
            self.alpha,
            self.label_smoothing,
            self.compute_nll_loss,
            self.gamma,
            self.chunk_size,
            softcap=self.softcap,
            logit_scale=self.logit_scale,
            workspace_limit=self.workspace_limit,
            strategy=self.strategy,
            precision=self.precision,
            grad_weight_dtype=self.grad_weight_dtype,
        )

    def extra_repr(self) -> str:
        return f"beta={self.beta}, gamma={self.gamma}, alpha={self.alpha}, label_smoothing={self.label_smoothing}"
