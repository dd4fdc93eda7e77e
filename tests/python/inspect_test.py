"""Tests python/lathe/inspect.py with the command, in a scratch cache.

usage: inspect_test.py LATHE
"""

import importlib.util
import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = {"hidden": 512, "vocab": 3000, "dtype": "bf16"}


def load() -> ModuleType:
    """The module from its file: the package around it needs liblathe."""
    spec = importlib.util.spec_from_file_location("lathe_inspect", ROOT / "python" / "lathe" / "inspect.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


inspection = load()


class InspectTest(unittest.TestCase):
    def setUp(self) -> None:
        self.cache = tempfile.TemporaryDirectory()
        self.addCleanup(self.cache.cleanup)
        os.environ["LATHE_CACHE_DIR"] = self.cache.name

    def test_one_step_has_its_code(self) -> None:
        plan = inspection.inspect(WORKLOAD, arch="sm_80", tokens=64, step="logits")
        kernel = plan.kernel("logits")
        self.assertGreater(kernel.resources.registers, 0)
        self.assertIn(
            kernel.resources.occupancy.limiter, ("registers", "shared memory", "threads", "blocks", "nothing")
        )
        self.assertIn(".entry", kernel.ptx)
        self.assertIn("lathe_logits.cu", kernel.sources)
        self.assertEqual(len(plan.kernels), 1)
        if not kernel.sass_problem:
            self.assertEqual(kernel.mix["total"], len(kernel.instructions))
            self.assertTrue(any(instruction.places for instruction in kernel.instructions))
        with self.assertRaises(KeyError):
            plan.kernel("nonsense")

    def test_a_kernel_is_explained(self) -> None:
        inspection.inspect(WORKLOAD, arch="sm_80", tokens=64, step="logits")
        (cubin,) = Path(self.cache.name).rglob("*.cubin")
        explanation = inspection.explain(cubin)
        self.assertTrue(explanation.known)
        self.assertEqual(explanation.step, "logits")
        self.assertEqual(explanation.workload["hidden"], 512)
        self.assertEqual(inspection.explain(cubin.stem[:12]), inspection.explain(cubin.stem))
        foreign = inspection.explain(ROOT / "tests" / "data" / "cubin" / "shared_sm_75_cuda13.cubin")
        self.assertFalse(foreign.known)
        self.assertEqual(foreign.entries, ("shared_user",))

    def test_errors_carry_the_message(self) -> None:
        with self.assertRaises(inspection.InspectionError) as caught:
            inspection.inspect(WORKLOAD, arch="sm_1")
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertIn("sm_1", str(caught.exception))
        os.environ["LATHE_COMMAND"], kept = "", os.environ["LATHE_COMMAND"]
        os.environ["PATH"], path = "", os.environ["PATH"]
        try:
            with self.assertRaises(inspection.InspectionError) as caught:
                inspection.explain("ffff")
        finally:
            os.environ["LATHE_COMMAND"], os.environ["PATH"] = kept, path
        self.assertIn("LATHE_COMMAND", str(caught.exception))


if __name__ == "__main__":
    os.environ["LATHE_COMMAND"] = sys.argv.pop(1)
    unittest.main()
