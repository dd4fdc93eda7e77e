"""Kernels as values: what `lathe inspect` and `lathe explain` find out, as dataclasses.

    plan = lathe.inspect.inspect({"hidden": 4096, "vocab": 128256, "dtype": "bf16"}, arch="sm_90a")
    for kernel in plan.kernels:
        print(kernel.step, kernel.resources.registers, kernel.resources.occupancy.limiter)

Needs the `lathe` command (in PATH, or named by LATHE_COMMAND), and no GPU. Bytes count in bytes, times in milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class InspectionError(RuntimeError):
    """What the command said, and the code that it exited with."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Occupancy:
    """How much of a multiprocessor a kernel fills."""

    blocks: int
    warps: int
    max_warps: int
    fraction: float
    limiter: str


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of the machine, as its cubin states it."""

    threads: int
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    stack_bytes: int
    spill_instructions: int | None
    barriers: int
    parameter_bytes: int
    code_bytes: int
    occupancy: Occupancy


@dataclass(frozen=True)
class Loop:
    """A loop of the machine code; addresses are those of its first and last instruction, of each of its parts."""

    addresses: tuple[tuple[int, int], ...]
    instructions: int
    depth: int
    flops_per_warp: float
    shared_bytes_per_warp: float
    mix: Mapping[str, int]


@dataclass(frozen=True)
class Place:
    """A line of a source."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One machine instruction, and the lines that it comes from, innermost first."""

    address: int
    text: str
    kind: str
    places: tuple[Place, ...]
    ptx_line: int
    target: int | None


@dataclass(frozen=True)
class Tile:
    """The tile of a matrix product and what the hot loop does for it."""

    tiles: int
    flops: float
    bytes: float
    hot_loop_iterations: float
    hot_loop_instructions_per_warp: float


@dataclass(frozen=True)
class Kernel:
    """One kernel, taken apart. Sources, PTX and instructions are there when one step was asked for."""

    step: str
    entry: str
    arch: str
    kernel_digest: str
    source_digest: str
    origin: str
    config: Mapping[str, Any] | None
    resources: Resources
    tile: Tile | None
    mix: Mapping[str, int]
    loops: tuple[Loop, ...]
    hot_loop: int | None
    sources: Mapping[str, str]
    ptx: str
    instructions: tuple[Instruction, ...]
    sass_problem: str


@dataclass(frozen=True)
class Step:
    """One launch of a plan, and the least time that each part of the machine needs for it."""

    kernel: str
    phase: str
    pairs: tuple[int, int]
    grid: tuple[int, int, int]
    flops: float
    bytes: float
    floors: Mapping[str, float]
    floor_ms: float
    bound: str
    predicted_ms: float | None
    measured_ms: float | None


@dataclass(frozen=True)
class Plan:
    """A plan, taken apart."""

    workload: Mapping[str, Any]
    workload_digest: str
    arch: str
    strategy: str
    workspace_bytes: int
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    lathe_version: str
    nvrtc_version: str

    def kernel(self, step: str) -> Kernel:
        """The kernel of `step`; KeyError when the plan has none."""
        for kernel in self.kernels:
            if kernel.step == step:
                return kernel
        raise KeyError(step)


@dataclass(frozen=True)
class Explanation:
    """Where a cubin comes from. Of one that is in no cache only the first four fields are known."""

    file: str
    cubin_digest: str
    arch: str
    entries: tuple[str, ...]
    known: bool
    kernel_digest: str = ""
    step: str = ""
    config: Mapping[str, Any] | None = None
    workload: Mapping[str, Any] | None = None
    workload_digest: str = ""
    compile_options: tuple[str, ...] = ()
    nvrtc_version: str = ""
    created: str = ""
    lathe_version: str = ""
    source: str = ""


def inspect(
    workload: Mapping[str, Any],
    *,
    arch: str,
    sequences: int = 4,
    tokens: int = 1024,
    step: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Plan:
    """Takes the kernels for `workload` (its JSON fields) on `arch` apart: all, or that of `step` with its code.

    `config` takes the place of the one that the plan would choose for the product `step`. Raises InspectionError.
    """
    arguments = ["inspect", "--workload", "-", "--arch", arch, "--json"]
    arguments += ["--sequences", str(sequences), "--tokens", str(tokens)]
    if step is not None:
        arguments += ["--step", step]
    if config is not None:
        arguments += ["--config", json.dumps(config)]
    return _plan(_run(arguments, json.dumps(workload)))


def explain(kernel: str | Path, *, cache_dirs: Sequence[str | Path] = ()) -> Explanation:
    """Explains a cubin's file, or the kernel whose digest begins with `kernel`. Raises InspectionError."""
    arguments = ["explain", str(kernel), "--json"]
    for folder in cache_dirs:
        arguments += ["--cache-dir", str(folder)]
    return _explanation(_run(arguments, ""))


def _command() -> str:
    command = os.environ.get("LATHE_COMMAND") or shutil.which("lathe")
    if not command:
        raise InspectionError("the command `lathe` is not in PATH; add its folder, or name it in LATHE_COMMAND", 3)
    return command


def _run(arguments: list[str], text: str) -> Any:
    done = subprocess.run([_command(), *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InspectionError(done.stderr.strip().removeprefix("lathe: error: "), done.returncode)
    return json.loads(done.stdout)


def _resources(value: Mapping[str, Any]) -> Resources:
    occupancy = value["occupancy"]
    fields = {name: value[name] for name in Resources.__dataclass_fields__ if name != "occupancy"}
    return Resources(
        **fields, occupancy=Occupancy(**{name: occupancy[name] for name in Occupancy.__dataclass_fields__})
    )


def _loop(value: Mapping[str, Any]) -> Loop:
    return Loop(
        addresses=tuple((first, last) for first, last in value["addresses"]),
        instructions=value["instructions"],
        depth=value["depth"],
        flops_per_warp=value["flops_per_warp"],
        shared_bytes_per_warp=value["shared_bytes_per_warp"],
        mix=value["mix"],
    )


def _instructions(sass: Mapping[str, Any] | None) -> tuple[Instruction, ...]:
    if sass is None:
        return ()
    stacks = [tuple(Place(file, line) for file, line in stack) for stack in sass["stacks"]]
    return tuple(
        Instruction(address, text, kind, stacks[stack] if stack >= 0 else (), ptx_line, target)
        for address, text, kind, stack, ptx_line, target in sass["instructions"]
    )


def _kernel(value: Mapping[str, Any]) -> Kernel:
    return Kernel(
        step=value["kernel"],
        entry=value["entry"],
        arch=value["arch"],
        kernel_digest=value["kernel_digest"],
        source_digest=value["source_digest"],
        origin=value["origin"],
        config=value["config"],
        resources=_resources(value["resources"]),
        tile=Tile(**value["tile"]) if "tile" in value else None,
        mix=value.get("mix", {}),
        loops=tuple(_loop(loop) for loop in value.get("loops", [])),
        hot_loop=value.get("hot_loop"),
        sources={source["name"]: source["text"] for source in value.get("sources", [])},
        ptx=value.get("ptx", ""),
        instructions=_instructions(value.get("sass")),
        sass_problem=value.get("sass_problem", ""),
    )


def _step(value: Mapping[str, Any]) -> Step:
    begin, end = value["pairs"]
    x, y, z = value["grid"]
    return Step(
        kernel=value["kernel"],
        phase=value["pass"],
        pairs=(begin, end),
        grid=(x, y, z),
        flops=value["flops"],
        bytes=value["bytes"],
        floors={floor["bound"]: floor["ms"] for floor in value["floors"]},
        floor_ms=value["floor_ms"],
        bound=value["bound"],
        predicted_ms=value["predicted_ms"],
        measured_ms=value["measured_ms"],
    )


def _plan(value: Mapping[str, Any]) -> Plan:
    return Plan(
        workload=value["workload"],
        workload_digest=value["workload_digest"],
        arch=value["arch"],
        strategy=value["strategy"],
        workspace_bytes=value["workspace_bytes"],
        steps=tuple(_step(step) for step in value["steps"]),
        kernels=tuple(_kernel(kernel) for kernel in value["kernels"]),
        lathe_version=value["lathe_version"],
        nvrtc_version=value["nvrtc_version"],
    )


def _explanation(value: Mapping[str, Any]) -> Explanation:
    known = value["known"]
    entries = tuple(entry["name"] for entry in value["entries"])
    basics = Explanation(value["file"], value["cubin_digest"], value["arch"], entries, known)
    if not known:
        return basics
    return Explanation(
        value["file"],
        value["cubin_digest"],
        value["arch"],
        entries,
        known,
        kernel_digest=value["kernel_digest"],
        step=value["kernel"],
        config=value["config"],
        workload=value["workload"],
        workload_digest=value["workload_digest"],
        compile_options=tuple(value["compile_options"]),
        nvrtc_version=value["nvrtc_version"],
        created=value["created"],
        lathe_version=value["lathe_version"],
        source=value["source"],
    )
