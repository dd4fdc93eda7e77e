# Part of Lathe, under the Apache License, version 2.0. See LICENSE.
"""The Python package, without PyTorch and without a GPU: runs on the host, and plans on a fake driver.

usage: capi_test.py, with LATHE_LIBRARY (liblathe.so) and LATHE_FAKE_CUDA (a fake driver) in the environment
"""

from __future__ import annotations

import array
import ctypes
import json
import math
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import unittest
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import lathe  # noqa: E402
from lathe import LatheError, Options, Runtime, Scalars, Status, Workload  # noqa: E402

SMALL = Workload(hidden=8, vocab=11, dtype="fp32", grad_weight_dtype="fp32")
PAIRS, TOKENS = 2, 3
ROWS = 2 * PAIRS * TOKENS


def address(values: array.array[Any]) -> int:
    return values.buffer_info()[0]


def zeros(count: int) -> array.array[float]:
    return array.array("f", bytes(4 * count))


class Problem:
    """Random inputs for SMALL in host memory."""

    def __init__(self) -> None:
        generator = random.Random(1)
        self.input = array.array("f", [generator.gauss(0, 1) for _ in range(ROWS * SMALL.hidden)])
        self.weight = array.array("f", [generator.gauss(0, 1) for _ in range(SMALL.vocab * SMALL.hidden)])
        self.target = array.array("q", [generator.randrange(SMALL.vocab) for _ in range(ROWS)])
        self.target[0] = -100
        self.target[ROWS - 1] = -100

    def pointers(self) -> dict[str, int]:
        return {"input": address(self.input), "weight": address(self.weight), "target": address(self.target)}

    def run(self, scalars: Scalars, **outputs: array.array[float]) -> float:
        """The loss; `outputs` are filled too."""
        loss = zeros(1)
        addresses = {name: address(values) for name, values in outputs.items()}
        lathe.run_on_host(SMALL, 2 * PAIRS, TOKENS, scalars, loss=address(loss), **self.pointers(), **addresses)
        return loss[0]

    def mean_logps(self) -> list[float]:
        """By sequence, in plain Python."""
        means = []
        for sequence in range(2 * PAIRS):
            logps = []
            for row in range(sequence * TOKENS, (sequence + 1) * TOKENS):
                if self.target[row] == -100:
                    continue
                x = self.input[row * SMALL.hidden : (row + 1) * SMALL.hidden]
                logits = [
                    sum(a * b for a, b in zip(x, self.weight[v * SMALL.hidden : (v + 1) * SMALL.hidden], strict=True))
                    for v in range(SMALL.vocab)
                ]
                logps.append(logits[self.target[row]] - math.log(sum(map(math.exp, logits))))
            means.append(sum(logps) / len(logps))
        return means


class HostTest(unittest.TestCase):
    def test_the_loss_is_that_of_plain_python(self) -> None:
        problem = Problem()
        scalars = Scalars(beta=2.0, gamma=0.25, alpha=0.0)
        chosen, preference = zeros(PAIRS), zeros(1)
        loss = problem.run(scalars, chosen_logps=chosen, preference_loss=preference)
        means = problem.mean_logps()
        margins = [2.0 * (means[i] - means[i + PAIRS]) - 0.25 for i in range(PAIRS)]
        expected = sum(math.log1p(math.exp(-margin)) for margin in margins) / PAIRS
        self.assertAlmostEqual(loss, expected, places=5)
        self.assertAlmostEqual(preference[0], expected, places=5)
        for got, want in zip(chosen, means, strict=False):
            self.assertAlmostEqual(got, want, places=5)

    def test_the_gradient_is_the_slope_of_the_loss(self) -> None:
        problem = Problem()
        gradient = zeros(len(problem.weight))
        upstream = array.array("f", [3.0])
        problem.run(Scalars(), grad_weight=gradient, upstream=upstream)
        index = max(range(len(gradient)), key=lambda i: abs(gradient[i]))
        losses = []
        for step in (0.01, -0.02):
            problem.weight[index] += step
            losses.append(problem.run(Scalars()))
        self.assertAlmostEqual(gradient[index], 3.0 * (losses[0] - losses[1]) / 0.02, delta=2e-3)

    def test_a_missing_pointer_is_named(self) -> None:
        pointers = Problem().pointers()
        del pointers["weight"]
        with self.assertRaises(LatheError) as caught:
            lathe.run_on_host(SMALL, 2 * PAIRS, TOKENS, Scalars(), **pointers)
        self.assertEqual(caught.exception.status, Status.INVALID_ARGUMENT)
        self.assertIn("weight is null", caught.exception.message)

    def test_an_odd_number_of_sequences_is_refused(self) -> None:
        with self.assertRaisesRegex(LatheError, "3"):
            lathe.run_on_host(SMALL, 3, TOKENS, Scalars(), **Problem().pointers())

    def test_an_unknown_argument_is_refused(self) -> None:
        for name in ("weights", "size", "beta"):
            with self.assertRaisesRegex(LatheError, f"{name} is no argument of a run"):
                lathe._arguments(Scalars(), {name: 1})


class WorkloadTest(unittest.TestCase):
    def test_the_digest_follows_the_workload(self) -> None:
        self.assertRegex(lathe.digest(SMALL), r"^sha256:[0-9a-f]{64}$")
        self.assertEqual(lathe.digest(SMALL), lathe.digest(replace(SMALL, grad_weight_dtype=None)))
        self.assertNotEqual(lathe.digest(SMALL), lathe.digest(replace(SMALL, softcap=True)))

    def test_bad_workloads_are_refused_with_the_reason(self) -> None:
        bad: list[tuple[dict[str, Any], Status, str]] = [
            ({"hidden": 0}, Status.INVALID_WORKLOAD, "hidden"),
            ({"vocab": -1}, Status.INVALID_WORKLOAD, "vocab"),
            ({"dtype": "bf16", "precision": "tf32"}, Status.INVALID_WORKLOAD, "tf32 is for fp32"),
            ({"dtype": "fp64"}, Status.INVALID_ARGUMENT, "dtype is 'fp64'; it must be one of bf16, fp16, fp32"),
            ({"precision": "fast"}, Status.INVALID_ARGUMENT, "precision is 'fast'"),
            ({"hidden": 2**63}, Status.INVALID_ARGUMENT, "hidden is 9223372036854775808"),
            ({"hidden": 8.0}, Status.INVALID_ARGUMENT, "hidden is 8.0; it must be an integer"),
            ({"vocab": True}, Status.INVALID_ARGUMENT, "vocab is True"),
        ]
        for change, status, message in bad:
            with self.subTest(change), self.assertRaises(LatheError) as caught:
                lathe.digest(replace(SMALL, **change))
            self.assertEqual(caught.exception.status, status)
            self.assertIn(message, caught.exception.message)

    def test_workloads_are_immutable(self) -> None:
        with self.assertRaises(FrozenInstanceError):
            SMALL.hidden = 9  # type: ignore[misc]

    def test_an_error_shows_its_message_and_status_and_can_be_pickled(self) -> None:
        error = pickle.loads(pickle.dumps(LatheError(Status.DRIVER, "no device")))
        self.assertEqual(str(error), "no device (DRIVER)")
        self.assertEqual(error.status, Status.DRIVER)


class PlanTest(unittest.TestCase):
    def setUp(self) -> None:
        driver = os.environ.get("LATHE_FAKE_CUDA")
        if not driver:
            self.skipTest("LATHE_FAKE_CUDA names no fake driver")
        os.environ["LATHE_LIBCUDA"] = driver
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.runtime = Runtime(cache_dir=scratch.name)

    def test_a_plan_is_made_once_and_described(self) -> None:
        plan = self.runtime.plan(SMALL, 4, 8)
        description = json.loads(plan.describe())
        self.assertEqual(description["workload_digest"], lathe.digest(SMALL))
        self.assertEqual(description["workspace_bytes"], plan.workspace_bytes)
        self.assertIs(self.runtime.plan(replace(SMALL), 4, 8), plan)
        self.assertIsNot(self.runtime.plan(SMALL, 4, 9), plan)
        chunked = self.runtime.plan(SMALL, 4, 8, Options(chunk_pairs=1))
        self.assertEqual(json.loads(chunked.describe())["strategy"], "chunked")

    def test_a_plan_runs(self) -> None:
        plan = self.runtime.plan(SMALL, 4, 8)
        names = ("input", "weight", "target", "grad_input", "grad_weight", "workspace")
        pointers = {name: (index + 1) << 30 for index, name in enumerate(names)}
        for run in (plan.forward, plan.backward, plan.run):
            run(Scalars(), 0, workspace_bytes=plan.workspace_bytes, **pointers)
        with self.assertRaises(LatheError) as caught:
            plan.run(Scalars(), 0, workspace_bytes=plan.workspace_bytes - 1, **pointers)
        self.assertEqual(caught.exception.status, Status.WORKSPACE)

    def test_bad_options_are_refused(self) -> None:
        for options, status in (
            (Options(workspace_limit=100), Status.WORKSPACE),
            (Options(workspace_limit=0), Status.INVALID_ARGUMENT),
            (Options(chunk_pairs=-1), Status.INVALID_ARGUMENT),
            (Options(device=5), Status.INVALID_ARGUMENT),
        ):
            with self.subTest(options), self.assertRaises(LatheError) as caught:
                self.runtime.plan(SMALL, 4, 8, options)
            self.assertEqual(caught.exception.status, status)

    def test_threads_share_one_plan(self) -> None:
        plans: list[lathe.Plan] = []
        threads = [threading.Thread(target=lambda: plans.append(self.runtime.plan(SMALL, 4, 8))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(plans), 8)
        self.assertEqual(len(set(plans)), 1)

    def test_a_forked_process_makes_plans_of_its_own(self) -> None:
        plan = self.runtime.plan(SMALL, 4, 8)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                own = self.runtime.plan(SMALL, 4, 8)
                status = 0 if own is not plan and own.workspace_bytes == plan.workspace_bytes else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertIs(self.runtime.plan(SMALL, 4, 8), plan)

    def test_a_runtime_can_be_pickled(self) -> None:
        self.runtime.plan(SMALL, 4, 8)
        copy = pickle.loads(pickle.dumps(self.runtime))
        self.assertGreater(copy.plan(SMALL, 4, 8).workspace_bytes, 0)


class LibraryTest(unittest.TestCase):
    def test_a_missing_library_is_named(self) -> None:
        code = "import lathe; lathe.version()"
        environment = {**os.environ, "LATHE_LIBRARY": "/nonexistent/liblathe.so", "PYTHONPATH": str(ROOT / "python")}
        result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("/nonexistent/liblathe.so", result.stderr)

    def test_structs_are_as_large_as_the_library_says(self) -> None:
        from lathe import _capi

        for struct, initialise in (
            (_capi.Workload, "workload"),
            (_capi.Shape, "shape"),
            (_capi.RuntimeOptions, "runtime_options"),
            (_capi.PlanOptions, "plan_options"),
            (_capi.RunArguments, "run_arguments"),
        ):
            value = struct()
            getattr(_capi.library(), f"lathe_{initialise}_init_sized")(value, ctypes.sizeof(struct))
            self.assertEqual(value.size, ctypes.sizeof(struct), initialise)  # type: ignore[attr-defined]
        self.assertEqual(
            {name: value for name, value in vars(Scalars()).items()},
            {name: getattr(lathe._arguments(Scalars(), {}), name) for name in vars(Scalars())},
        )


if __name__ == "__main__":
    unittest.main()
