"""Times Lathe, cuBLAS's bare products and peers on one GPU, interleaved round by round.

Every figure is the median over rounds of one call between two CUDA events, after the L2 cache was flushed. Rounds
visit all contenders in turn, so that a card that warms up slows all of them alike.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lathe import _capi

IGNORED = -100
# Of input and weight.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MODELS = {
    "llama-3-8b": (4096, 128256, 0.0),
    "gemma-2-9b": (3584, 256000, 30.0),
    "mistral-7b": (4096, 32000, 0.0),
    "qwen2.5-7b": (3584, 152064, 0.0),
    "llama-3.2-1b": (2048, 128256, 0.0),
}


class Lathe:
    """A runtime of the C API, called with structs that are made once, so that nothing is built in a timed call."""

    def __init__(self) -> None:
        self.library = _capi.library()
        self.runtime = ctypes.c_void_p()
        self.check(self.library.lathe_runtime_create(None, ctypes.byref(self.runtime)))

    def check(self, status: int) -> None:
        if status != _capi.OK:
            raise RuntimeError(_capi.last_error())

    def initialise(self, kind: str, struct: ctypes.Structure) -> None:
        """Sets the defaults of a struct."""
        getattr(self.library, f"lathe_{kind}_init_sized")(ctypes.byref(struct), ctypes.sizeof(struct))


@dataclass(frozen=True)
class Problem:
    """Inputs of one shape on the GPU."""

    sequences: int
    tokens: int
    hidden: int
    vocab: int
    softcap: float
    input: torch.Tensor
    weight: torch.Tensor
    target: torch.Tensor

    @staticmethod
    def make(
        sequences: int,
        tokens: int,
        hidden: int,
        vocab: int,
        softcap: float,
        masked: float,
    ) -> Problem:
        generator = torch.Generator(device="cuda").manual_seed(1)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=generator)

        target = torch.randint(vocab, (sequences, tokens), device="cuda", generator=generator)
        target[:, : int(tokens * masked)] = IGNORED
        return Problem(
            sequences,
            tokens,
            hidden,
            vocab,
            softcap,
            normal(sequences, tokens, hidden),
            normal(vocab, hidden) / hidden**0.5,
            target,
        )


class LathePlan:
    """A plan with its buffers."""

    def __init__(self, lathe: Lathe, problem: Problem, gradients: bool, chunk_pairs: int = 0) -> None:
        library = lathe.library
        workload = _capi.Workload()
        lathe.initialise("workload", workload)
        workload.hidden, workload.vocab = problem.hidden, problem.vocab
        workload.softcap = int(problem.softcap > 0)
        if not gradients:
            workload.grad_input = workload.grad_weight = 0
        shape = _capi.Shape()
        lathe.initialise("shape", shape)
        shape.sequences, shape.tokens = problem.sequences, problem.tokens
        options = _capi.PlanOptions()
        lathe.initialise("plan_options", options)
        options.chunk_pairs = chunk_pairs
        self.lathe = lathe
        self.plan = ctypes.c_void_p()
        begin = time.perf_counter()
        lathe.check(
            library.lathe_plan_create(
                lathe.runtime,
                ctypes.byref(workload),
                ctypes.byref(shape),
                ctypes.byref(options),
                ctypes.byref(self.plan),
            )
        )
        self.plan_milliseconds = (time.perf_counter() - begin) * 1e3
        self.workspace_bytes = int(library.lathe_plan_workspace_bytes(self.plan))
        self.workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device="cuda")
        self.loss = torch.full((1,), float("nan"), device="cuda")
        self.arguments = _capi.RunArguments()
        lathe.initialise("run_arguments", self.arguments)
        self.arguments.input = problem.input.data_ptr()
        self.arguments.weight = problem.weight.data_ptr()
        self.arguments.target = problem.target.data_ptr()
        self.arguments.softcap = problem.softcap
        self.arguments.loss = self.loss.data_ptr()
        self.arguments.workspace = self.workspace.data_ptr()
        self.arguments.workspace_bytes = self.workspace_bytes
        if gradients:
            self.grad_input = torch.empty_like(problem.input)
            self.grad_weight = torch.empty_like(problem.weight)
            self.arguments.grad_input = self.grad_input.data_ptr()
            self.arguments.grad_weight = self.grad_weight.data_ptr()

    def run(self) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.lathe.check(self.lathe.library.lathe_plan_run(self.plan, ctypes.byref(self.arguments), stream))

    def host_microseconds(self) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(8):
            self.run()
        elapsed = time.perf_counter() - begin
        torch.cuda.synchronize()
        return elapsed / 8 * 1e6


@dataclass
class Contender:
    """One thing to time, and its times in milliseconds."""

    name: str
    call: Callable[[], object]
    times: list[float] = field(default_factory=list)

    def median(self) -> float:
        return statistics.median(self.times)


def cublas(problem: Problem) -> list[Contender]:
    """The three products, as `torch.matmul` hands them to cuBLAS."""
    rows = problem.input.view(-1, problem.hidden)
    logits = rows @ problem.weight.T
    grad_input = torch.empty_like(rows)
    grad_weight = torch.empty_like(problem.weight)

    def forward() -> None:
        torch.mm(rows, problem.weight.T, out=logits)

    def backward_input() -> None:
        torch.mm(logits, problem.weight, out=grad_input)

    def backward_weight() -> None:
        torch.mm(logits.T, rows, out=grad_weight)

    def all_three() -> None:
        forward()
        backward_input()
        backward_weight()

    return [
        Contender("cuBLAS logits", forward),
        Contender("cuBLAS grad input", backward_input),
        Contender("cuBLAS grad weight", backward_weight),
        Contender("cuBLAS all three", all_three),
    ]


def eager(problem: Problem) -> Loss:
    """The loss as trainers write it."""
    pairs = problem.sequences // 2

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        z = x @ w.T
        if problem.softcap > 0:
            z = problem.softcap * torch.tanh(z / problem.softcap)
        valid = problem.target != IGNORED
        picked = torch.gather(z.log_softmax(-1), 2, problem.target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        picked = torch.where(valid, picked, 0)
        mean = picked.sum(-1) / valid.sum(-1)
        nll = -picked[:pairs].sum() / valid[:pairs].sum()
        margin = 0.1 * (mean[:pairs] - mean[pairs:]) - 0.5
        return -torch.nn.functional.logsigmoid(margin).mean() + nll

    return loss


def with_backward(problem: Problem, loss: Loss) -> Callable[[], None]:
    x = problem.input.detach().requires_grad_()
    w = problem.weight.detach().requires_grad_()

    def call() -> None:
        x.grad = w.grad = None
        loss(x, w).backward()  # type: ignore[no-untyped-call]

    return call


def peers(problem: Problem) -> list[Contender]:
    contenders = []
    forward = eager(problem)

    def eager_forward() -> None:
        with torch.no_grad():
            forward(problem.input, problem.weight)

    contenders.append(Contender("PyTorch eager forward", eager_forward))
    contenders.append(Contender("PyTorch eager", with_backward(problem, forward)))
    if liger := liger_loss(problem):
        contenders.append(Contender("Liger", with_backward(problem, liger)))
    return contenders


def loss_of(module: Any, problem: Problem) -> Loss:
    """The loss of a module with Liger's interface."""

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = module(w, x, problem.target)[0]
        return result

    return loss


def liger_loss(problem: Problem) -> Loss | None:
    """Liger's loss, where it is installed."""
    try:
        from liger_kernel.chunked_loss import LigerFusedLinearSimPOLoss
    except ImportError:
        return None
    return loss_of(LigerFusedLinearSimPOLoss(compute_nll_loss=True), problem)


def modules(problem: Problem) -> list[Contender]:
    """Lathe's PyTorch module and its peers, as a training script calls them."""
    from lathe.torch import FusedLinearSimPOLoss

    module = FusedLinearSimPOLoss(softcap=problem.softcap or None)
    losses = {"Lathe": loss_of(module, problem), "Liger": liger_loss(problem), "PyTorch eager": eager(problem)}

    def forward(loss: Loss) -> Callable[[], None]:
        def call() -> None:
            with torch.no_grad():
                loss(problem.input, problem.weight)

        return call

    contenders = []
    for name, loss in losses.items():
        if loss is not None:
            contenders.append(Contender(f"{name} forward", forward(loss)))
            contenders.append(Contender(f"{name} forward + backward", with_backward(problem, loss)))
    return contenders


def peak_mib(contender: Contender) -> float:
    """Device memory that one call needs at most beyond its inputs and gradients."""
    contender.call()
    torch.cuda.synchronize()
    # The gradients of the call before are among it; the call replaces them.
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    contender.call()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before) / 2**20


def bench_modules(arguments: argparse.Namespace, model: str, sequences: int, masked: float) -> dict[str, Any]:
    hidden, vocab, softcap = MODELS[model]
    problem = Problem.make(sequences, arguments.tokens, hidden, vocab, softcap, masked)
    contenders = modules(problem)
    peaks = {contender.name: peak_mib(contender) for contender in contenders}
    measure(contenders, arguments.rounds)
    figures = {}
    for contender in contenders:
        fifths = statistics.quantiles(contender.times, n=5)
        figures[contender.name] = {
            "milliseconds": contender.median(),
            "p20": fifths[0],
            "p80": fifths[-1],
            "peak_mib": peaks[contender.name],
        }
    return {
        "model": model,
        "sequences": sequences,
        "tokens": arguments.tokens,
        "masked": masked,
        "modules": figures,
    }


def print_modules(result: dict[str, Any]) -> None:
    print(f"\n{result['model']}, {result['sequences']} x {result['tokens']} tokens, {result['masked']:.0%} masked")
    print(f"  {'PyTorch modules':<34}{'ms':>9}{'p20':>9}{'p80':>9}{'peak MiB':>10}")
    for name, figure in result["modules"].items():
        times = "".join(f"{figure[key]:9.3f}" for key in ("milliseconds", "p20", "p80"))
        print(f"  {name:<34}{times}{figure['peak_mib']:10.0f}")


def measure(contenders: list[Contender], rounds: int) -> None:
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for contender in contenders:
        for _ in range(2):
            contender.call()
    torch.cuda.synchronize()
    for _ in range(rounds):
        for contender in contenders:
            flush.zero_()
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()  # type: ignore[no-untyped-call]
            contender.call()
            end.record()  # type: ignore[no-untyped-call]
            end.synchronize()
            contender.times.append(begin.elapsed_time(end))


def bench(
    lathe: Lathe,
    arguments: argparse.Namespace,
    model: str,
    sequences: int,
    masked: float,
) -> dict[str, Any]:
    hidden, vocab, softcap = MODELS[model]
    problem = Problem.make(sequences, arguments.tokens, hidden, vocab, softcap, masked)
    forward = LathePlan(lathe, problem, gradients=False)
    stored = LathePlan(lathe, problem, gradients=True)
    contenders = [
        Contender("Lathe forward", forward.run),
        Contender("Lathe", stored.run),
        *cublas(problem),
    ]
    if sequences > 2:
        chunked = LathePlan(lathe, problem, gradients=True, chunk_pairs=1)
        contenders.append(Contender("Lathe, a pair at a time", chunked.run))
    if arguments.peers:
        contenders += peers(problem)
    measure(contenders, arguments.rounds)

    with torch.no_grad():
        expected = float(eager(problem)(problem.input, problem.weight))
    times = {contender.name: contender.median() for contender in contenders}
    torch.cuda.synchronize()
    return {
        "model": model,
        "sequences": sequences,
        "tokens": arguments.tokens,
        "masked": masked,
        "milliseconds": times,
        "forward_ratio": times["Lathe forward"] / times["cuBLAS logits"],
        "ratio": times["Lathe"] / times["cuBLAS all three"],
        "workspace_mib": stored.workspace_bytes / 2**20,
        "plan_milliseconds": stored.plan_milliseconds,
        "host_microseconds": stored.host_microseconds(),
        "loss": float(stored.loss),
        "eager_loss": expected,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, default=Path("build/release/runtime/liblathe.so"))
    parser.add_argument("--models", default="llama-3-8b", help="names, separated by commas, or all")
    parser.add_argument("--sequences", default="4", help="numbers, separated by commas")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--masked", default="0", help="shares of masked tokens, separated by commas")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peers", action="store_true", help="also PyTorch eager and Liger")
    parser.add_argument("--module", action="store_true", help="the PyTorch module, next to Liger and PyTorch eager")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    arguments = parser.parse_args()
    os.environ["LATHE_LIBRARY"] = str(arguments.library.resolve())
    lathe = None if arguments.module else Lathe()
    models = list(MODELS) if arguments.models == "all" else arguments.models.split(",")
    results = []
    for model in models:
        for sequences in map(int, arguments.sequences.split(",")):
            for masked in map(float, arguments.masked.split(",")):
                if lathe is None:
                    results.append(bench_modules(arguments, model, sequences, masked))
                else:
                    results.append(bench(lathe, arguments, model, sequences, masked))
                torch.cuda.empty_cache()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{torch.cuda.get_device_name()}, medians of {arguments.rounds} rounds, milliseconds")
    for result in results:
        if arguments.module:
            print_modules(result)
            continue
        print(
            f"\n{result['model']}, {result['sequences']} x {result['tokens']} tokens, {result['masked']:.0%} masked: "
            f"forward {result['forward_ratio']:.3f}, all {result['ratio']:.3f} of cuBLAS; workspace "
            f"{result['workspace_mib']:.0f} MiB; plan {result['plan_milliseconds']:.0f} ms; host "
            f"{result['host_microseconds']:.0f} us; loss {result['loss']:.5f} (eager {result['eager_loss']:.5f})"
        )
        for name, milliseconds in result["milliseconds"].items():
            print(f"  {name:<26}{milliseconds:9.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
