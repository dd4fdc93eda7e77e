# Part of Lathe, under the Apache License, version 2.0. See LICENSE.
"""The PyTorch module against PyTorch in float64. Skipped, saying why, without PyTorch or without a GPU.

usage: LATHE_LIBRARY=build/release/runtime/liblathe.so PYTHONPATH=python python3 tests/gpu/torch_test.py
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import sys
import unittest
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import lathe

try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    from lathe.torch import FusedLinearSimPOLoss, fused_linear_simpo_loss

MISSING = "PyTorch is not installed" if torch is None else "" if torch.cuda.is_available() else "there is no CUDA GPU"
IGNORED = -100


@dataclass(frozen=True)
class Problem:
    """Inputs of one size, and the numbers of the loss."""

    input: Any
    weight: Any
    target: Any
    bias: Any = None
    settings: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def make(
        dtype: Any,
        sequences: int = 4,
        tokens: int = 24,
        hidden: int = 64,
        vocab: int = 500,
        bias: bool = False,
        masked: bool = True,
        device: str = "cuda",
        seed: int = 1,
        **settings: Any,
    ) -> Problem:
        generator = torch.Generator(device="cpu").manual_seed(seed)

        def normal(*shape: int) -> Any:
            return torch.randn(*shape, generator=generator).to(device=device, dtype=dtype)

        target = torch.randint(vocab, (sequences, tokens), generator=generator)
        if masked:
            for row in range(sequences):
                target[row, : row + 3] = IGNORED
                target[row, tokens - row :] = IGNORED
        return Problem(
            normal(sequences, tokens, hidden),
            normal(vocab, hidden) / 4,
            target.to(device),
            normal(vocab) if bias else None,
            tuple(settings.items()),
        )

    def leaves(self) -> tuple[Any, Any, Any]:
        """Input, weight and bias that want gradients."""
        tensors = (self.input, self.weight, self.bias)
        return tuple(None if t is None else t.detach().clone().requires_grad_() for t in tensors)  # type: ignore[return-value]

    def module(self) -> Any:
        return FusedLinearSimPOLoss(**dict(self.settings))

    def doubled(self) -> Problem:
        """The same in float64."""
        return replace(
            self,
            input=self.input.double(),
            weight=self.weight.double(),
            bias=None if self.bias is None else self.bias.double(),
        )


def eager(problem: Problem, input: Any, weight: Any, bias: Any) -> tuple[Any, tuple[Any, ...]]:
    """The loss and the other results, in the order of the module, by PyTorch's own operators."""
    settings = dict(problem.settings)
    beta, gamma = settings.get("beta", 0.1), settings.get("gamma", 0.5)
    alpha, smoothing = settings.get("alpha", 1.0), settings.get("label_smoothing", 0.0)
    softcap = settings.get("softcap")
    z = input @ weight.T
    if bias is not None:
        z = z + bias
    z = z * settings.get("logit_scale", 1.0)
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    pairs = input.shape[0] // 2
    valid = problem.target != IGNORED
    picked = z.log_softmax(-1).gather(2, problem.target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    picked = torch.where(valid, picked, 0.0)
    mean = picked.sum(-1) / valid.sum(-1).clamp(min=1)
    chosen, rejected = mean[:pairs], mean[pairs:]
    margin = beta * (chosen - rejected) - gamma
    log_sigmoid = torch.nn.functional.logsigmoid
    loss = (-(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)).mean()
    nll = torch.zeros_like(loss)
    if settings.get("compute_nll_loss", True):
        nll = -picked[:pairs].sum() / valid[:pairs].sum()
        loss = loss + alpha * nll
    means = (z[:pairs].mean(), z[pairs:].mean())
    return loss, (chosen, rejected, *means, nll, beta * chosen, beta * rejected)


def relative_error(got: Any, expected: Any) -> float:
    """In the L2 norm."""
    return float((got.double() - expected).norm() / expected.norm().clamp(min=1e-30))


class LossTest(unittest.TestCase):
    """What every test here needs: a comparison with float64."""

    def setUp(self) -> None:
        if MISSING:
            self.skipTest(MISSING)

    def expected(self, problem: Problem, upstream: float = 1.0) -> tuple[Any, tuple[Any, ...], list[Any]]:
        doubled = problem.doubled()
        leaves = doubled.leaves()
        loss, auxiliary = eager(doubled, *leaves)
        (upstream * loss).backward()
        return loss.detach(), auxiliary, [None if leaf is None else leaf.grad for leaf in leaves]

    def assert_close(self, got: Any, expected: Any, tolerance: float, name: str) -> None:
        error = float(((got.double() - expected).abs() / (1 + expected.abs())).max())
        self.assertEqual(got.shape, expected.shape, name)
        self.assertLess(error, tolerance, name)

    def assert_gradients(self, leaves: Any, gradients: list[Any], dtype: Any) -> None:
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        for name, leaf, gradient in zip(("input", "weight", "bias"), leaves, gradients, strict=True):
            if gradient is not None:
                self.assertEqual(leaf.grad.dtype, leaf.dtype, name)
                self.assertLess(relative_error(leaf.grad, gradient), tolerance, name)

    def check(self, problem: Problem, call: Callable[..., Any] | None = None) -> None:
        """Values and gradients of `call`, or of the module, are those of float64."""
        dtype = problem.input.dtype
        tolerance = 1e-5 if dtype == torch.float32 else 2e-3
        input, weight, bias = problem.leaves()
        module = problem.module() if call is None else call
        loss, auxiliary = module(weight, input, problem.target, bias)
        (3.0 * loss).backward()
        expected_loss, expected_auxiliary, gradients = self.expected(problem, 3.0)
        self.assertEqual(loss.dtype, torch.float32)
        self.assert_close(loss, expected_loss, tolerance, "loss")
        names = ("chosen_logps", "rejected_logps", "chosen_mean", "rejected_mean", "nll", "chosen_r", "rejected_r")
        for name, got, wanted in zip(names, auxiliary, expected_auxiliary, strict=True):
            self.assertFalse(got.requires_grad, name)
            self.assert_close(got, wanted.detach(), tolerance, name)
        self.assert_gradients((input, weight, bias), gradients, dtype)


class ValuesTest(LossTest):
    def test_values_and_gradients_are_those_of_float64(self) -> None:
        variants: list[dict[str, Any]] = [
            {"masked": False},
            {},
            {"bias": True},
            {"softcap": 3.0},
            {"bias": True, "softcap": 3.0, "logit_scale": 0.5, "beta": 2.0, "gamma": 1.0, "alpha": 0.25},
            {"label_smoothing": 0.1, "compute_nll_loss": False},
            {"strategy": "chunked"},
            {"strategy": "stored", "sequences": 6, "tokens": 17, "hidden": 40, "vocab": 333},
        ]
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for variant in variants:
                with self.subTest(dtype=dtype, **variant):
                    self.check(Problem.make(dtype, **variant))

    def test_the_function_is_the_module(self) -> None:
        self.check(Problem.make(torch.bfloat16), fused_linear_simpo_loss)

    def test_on_the_cpu_the_reference_is_run(self) -> None:
        self.check(Problem.make(torch.float32, device="cpu", bias=True, softcap=3.0))

    def test_tensors_need_be_neither_contiguous_nor_aligned(self) -> None:
        plain = Problem.make(torch.bfloat16)
        padded = torch.nn.functional.pad(plain.weight, (1, 7))
        self.check(replace(plain, input=plain.input.transpose(0, 1).contiguous().transpose(0, 1)))

        def call(weight: Any, input: Any, target: Any, bias: Any) -> Any:
            storage = torch.cat([padded.new_zeros(1), weight.reshape(-1)])
            return plain.module()(storage[1:].view_as(weight), input, target, bias)

        self.check(plain, call)

    def test_under_autocast_tensors_are_cast(self) -> None:
        problem = Problem.make(torch.float32)
        input, weight, _ = problem.leaves()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss, _ = problem.module()(weight, input, problem.target)
        loss.backward()
        expected, _, gradients = self.expected(problem)
        self.assertLess(abs(float(loss) - float(expected)), 2e-2)
        for leaf, gradient in ((input, gradients[0]), (weight, gradients[1])):
            self.assertEqual(leaf.grad.dtype, torch.float32)
            self.assertLess(relative_error(leaf.grad, gradient), 2e-2)


class AutogradTest(LossTest):
    def test_only_wanted_gradients_are_computed(self) -> None:
        problem = Problem.make(torch.bfloat16, bias=True)
        _, _, gradients = self.expected(problem)
        for wanted in range(8):
            with self.subTest(wanted=wanted):
                leaves = problem.leaves()
                for index, leaf in enumerate(leaves):
                    leaf.requires_grad_(bool(wanted & 1 << index))
                loss, _ = problem.module()(leaves[1], leaves[0], problem.target, leaves[2])
                self.assertEqual(loss.requires_grad, wanted != 0)
                if wanted:
                    loss.backward()
                for index, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
                    if wanted & 1 << index:
                        self.assertLess(relative_error(leaf.grad, gradient), 1e-2)
                    else:
                        self.assertIsNone(leaf.grad)

    def test_without_gradients_less_memory_is_needed(self) -> None:
        problem = Problem.make(torch.bfloat16, tokens=256, vocab=20000)
        input, weight, _ = problem.leaves()
        module = problem.module()

        def kept() -> int:
            torch.cuda.synchronize()
            before = int(torch.cuda.memory_allocated())
            results = module(weight, input, problem.target)
            self.assertEqual(len(results), 2)
            return int(torch.cuda.memory_allocated()) - before

        with_gradients = kept()
        for guard in (torch.no_grad, torch.inference_mode):
            with guard():
                self.assertLess(kept(), 1 << 20)
        self.assertGreater(with_gradients, 1 << 20)

    def test_gradients_accumulate(self) -> None:
        problems = [Problem.make(torch.float32, seed=seed) for seed in (1, 2)]
        weight = problems[0].weight
        problems = [replace(problem, weight=weight) for problem in problems]
        leaf = weight.detach().clone().requires_grad_()
        for problem in problems:
            problem.module()(leaf, problem.input, problem.target)[0].backward()
        total = sum(self.expected(problem)[2][1] for problem in problems)
        self.assertLess(relative_error(leaf.grad, total), 1e-5)

    def test_a_retained_graph_gives_the_same_gradients_again(self) -> None:
        for strategy in ("stored", "chunked"):
            with self.subTest(strategy):
                problem = Problem.make(torch.bfloat16, bias=True, strategy=strategy)
                leaves = problem.leaves()
                loss, _ = problem.module()(leaves[1], leaves[0], problem.target, leaves[2])
                loss.backward(retain_graph=True)
                first = [leaf.grad.clone() for leaf in leaves]
                for leaf in leaves:
                    leaf.grad = None
                loss.backward()
                for leaf, gradient in zip(leaves, first, strict=True):
                    self.assertLess(relative_error(leaf.grad, gradient.double()), 1e-2)

    def test_a_second_derivative_is_refused(self) -> None:
        problem = Problem.make(torch.float32)
        input, weight, _ = problem.leaves()
        loss, _ = problem.module()(weight, input, problem.target)
        (gradient,) = torch.autograd.grad(loss, input, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "once only"):
            gradient.sum().backward()

    def test_the_weight_gradient_may_be_fp32(self) -> None:
        problem = Problem.make(torch.bfloat16, grad_weight_dtype=torch.float32)
        self.check(problem)
        input, weight, _ = problem.leaves()
        if not hasattr(weight, "grad_dtype"):
            self.skipTest("this PyTorch has no grad_dtype")
        weight.grad_dtype = torch.float32
        problem.module()(weight, input, problem.target)[0].backward()
        self.assertEqual(weight.grad.dtype, torch.float32)
        self.assertLess(relative_error(weight.grad, self.expected(problem)[2][1]), 1e-2)

    def test_the_operators_keep_their_word(self) -> None:
        for gradients in (False, True):
            problem = Problem.make(torch.float32, bias=True)
            leaves = problem.leaves() if gradients else (problem.input, problem.weight, problem.bias)
            settings = (0.1, 0.5, 0.0, 1.0, IGNORED, None, None, True, *[gradients] * 3, "ieee", "fp32", None, None)
            # With gradients an output is the workspace, whose contents are not all defined: nothing to compare.
            checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
            torch.library.opcheck(
                torch.ops.lathe.fused_linear_simpo.default,
                (leaves[0], leaves[1], problem.target, leaves[2], *settings),
                test_utils=checks if gradients else [*checks, "test_aot_dispatch_dynamic"],
            )


class ExecutionTest(LossTest):
    def test_forward_and_backward_are_captured_in_a_cuda_graph(self) -> None:
        problem, other = (Problem.make(torch.bfloat16, seed=seed) for seed in (1, 2))
        input, weight, _ = problem.leaves()
        target = problem.target.clone()
        module = problem.module()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                input.grad = weight.grad = None
                module(weight, input, target)[0].backward()
        torch.cuda.current_stream().wait_stream(side)
        input.grad = weight.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss, _ = module(weight, input, target)
            loss.backward()
        for current in (problem, other, problem):
            with torch.no_grad():
                input.copy_(current.input)
                weight.copy_(current.weight)
                target.copy_(current.target)
            graph.replay()
            expected, _, gradients = self.expected(current)
            self.assert_close(loss.detach(), expected, 2e-3, "loss")
            self.assert_gradients((input, weight, None), gradients, torch.bfloat16)

    def test_it_compiles_as_one_graph(self) -> None:
        variants: list[dict[str, Any]] = [{}, {"bias": True, "softcap": 3.0}]
        for variant in variants:
            with self.subTest(**variant):
                torch._dynamo.reset()
                problem = Problem.make(torch.bfloat16, **variant)
                self.check(problem, torch.compile(problem.module(), fullgraph=True))

    def test_it_compiles_for_any_number_of_tokens(self) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(FusedLinearSimPOLoss(), fullgraph=True, dynamic=True)
        for tokens in (24, 32, 40):
            with self.subTest(tokens=tokens):
                self.check(Problem.make(torch.bfloat16, tokens=tokens), compiled)

    def test_two_streams_run_side_by_side(self) -> None:
        problems = [Problem.make(torch.bfloat16, seed=seed, tokens=128) for seed in (1, 2)]
        streams = [torch.cuda.Stream() for _ in problems]
        runs: list[tuple[Any, Any, Any]] = []
        torch.cuda.synchronize()
        for _ in range(3):
            runs = []
            for problem, stream in zip(problems, streams, strict=True):
                with torch.cuda.stream(stream):
                    input, weight, _ = problem.leaves()
                    loss, _ = problem.module()(weight, input, problem.target)
                    loss.backward()
                    runs.append((loss, input, weight))
        torch.cuda.synchronize()
        for problem, (loss, input, weight) in zip(problems, runs, strict=True):
            expected, _, gradients = self.expected(problem)
            self.assert_close(loss.detach(), expected, 2e-3, "loss")
            self.assert_gradients((input, weight, None), gradients, torch.bfloat16)

    def test_nothing_waits_for_the_gpu(self) -> None:
        problem = Problem.make(torch.bfloat16, bias=True)
        self.check(problem)
        torch.cuda.set_sync_debug_mode("error")
        try:
            input, weight, bias = problem.leaves()
            problem.module()(weight, input, problem.target, bias)[0].backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_copies_of_a_module_work(self) -> None:
        problem = Problem.make(torch.bfloat16, beta=0.7, softcap=3.0)
        module = problem.module()
        self.check(problem, module)
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)):
            self.check(problem, twin)


class ErrorsTest(LossTest):
    def refused(self, message: str, problem: Problem, **change: Any) -> None:
        tensors = {
            "lin_weight": problem.weight,
            "input": problem.input,
            "target": problem.target,
            "bias": problem.bias,
        }
        with self.subTest(message), self.assertRaisesRegex(ValueError, message):
            FusedLinearSimPOLoss()(**{**tensors, **change})

    def test_tensors_that_do_not_fit_are_refused(self) -> None:
        problem = Problem.make(torch.bfloat16, bias=True)
        self.refused("3 sequences", problem, input=problem.input[:3], target=problem.target[:3])
        self.refused("2 dimensions", problem, input=problem.input[0])
        self.refused("lin_weight is", problem, lin_weight=problem.weight[:, :8])
        self.refused("target is", problem, target=problem.target[:, :3])
        self.refused("target is torch.int32", problem, target=problem.target.int())
        self.refused("bias is", problem, bias=problem.bias[:3])
        self.refused("input is torch.float64", problem, input=problem.input.double())
        self.refused("lin_weight is torch.float32", problem, lin_weight=problem.weight.float())
        self.refused("lin_weight is on cpu", problem, lin_weight=problem.weight.cpu())
        self.refused("input is on meta", problem, input=problem.input.to("meta"))

    def test_settings_that_make_no_sense_are_refused(self) -> None:
        bad: list[tuple[str, Any]] = [
            ("beta", float("nan")),
            ("label_smoothing", 1.5),
            ("softcap", 0.0),
            ("chunk_size", 0),
            ("workspace_limit", 0),
            ("strategy", "fast"),
            ("precision", "bf16"),
            ("grad_weight_dtype", "half"),
        ]
        for name, value in bad:
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name} is"):
                FusedLinearSimPOLoss(**{name: value})

    def test_a_workspace_that_is_too_small_is_refused(self) -> None:
        problem = Problem.make(torch.bfloat16, workspace_limit=100)
        input, weight, _ = problem.leaves()
        with self.assertRaises(lathe.LatheError) as caught:
            problem.module()(weight, input, problem.target)
        self.assertEqual(caught.exception.status, lathe.Status.WORKSPACE)

    def test_a_chunked_plan_is_chunked(self) -> None:
        options = lathe.Options(chunk_pairs=1, device=0)
        workload = lathe.Workload(hidden=64, vocab=500, dtype="bf16")
        plan = lathe.default_runtime().plan(workload, 4, 24, options)
        self.assertEqual(json.loads(plan.describe())["strategy"], "chunked")


if __name__ == "__main__":
    unittest.main()
