"""Runs the `lathe` commands that README.md and docs/*.md show, in a scratch cache; fails when one does.

usage: commands_test.py LATHE

Looked at are the fenced blocks marked `sh` or `console`, and in them the lines that begin with `lathe` or
`build/release/cli/lathe`, after `$ ` in a console. A backslash at the end of a line continues it. Lines that name a
CUDA device need a GPU and are left out. The blocks marked `cpp` or `c` must be parts of the programs in examples/.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:build/release/cli/)?(lathe .*)$")
SECONDS = 300


def blocks(text: str, *languages: str) -> Iterator[str]:
    """The contents of the fenced blocks in one of `languages`."""
    for language, body in FENCE.findall(text):
        if language in languages:
            yield body


def commands(text: str) -> Iterator[str]:
    """The command lines to run, each beginning with `lathe`."""
    for body in blocks(text, "sh", "console"):
        for line in body.replace("\\\n", " ").splitlines():
            match = COMMAND.match(line)
            if match and "cuda" not in line:
                yield match[1]


def run(command: str, scratch: Path) -> str | None:
    """Runs one command as a reader would; says what went wrong."""
    environment = os.environ | {"LATHE_CACHE_DIR": str(scratch / "cache"), "PATH": f"{scratch}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", command],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {SECONDS} s"
    return f"exit code {done.returncode}\n{done.stderr}" if done.returncode != 0 else None


def check_commands(document: Path, lathe: Path) -> tuple[int, list[str]]:
    """Runs the commands of one document in a folder of its own; their number, and the failures."""
    failures = []
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "lathe").symlink_to(lathe)
        (scratch / "tests").symlink_to(ROOT / "tests")
        for command in commands(document.read_text()):
            count += 1
            if problem := run(command, scratch):
                failures.append(f"{document.relative_to(ROOT)}: {command}\n{problem}")
    return count, failures


def check_code(document: Path) -> list[str]:
    """The blocks of C and C++ that are no part of an example."""
    sources = [path for pattern in ("*.cpp", "*.c", "*.h") for path in (ROOT / "examples").rglob(pattern)]
    examples = ["\n".join(line.strip() for line in path.read_text().splitlines()) for path in sources]
    failures = []
    for body in blocks(document.read_text(), "cpp", "c"):
        wanted = "\n".join(line.strip() for line in body.strip().splitlines())
        if not any(wanted in example for example in examples):
            failures.append(f"{document.relative_to(ROOT)}: this code is in no file of examples/:\n{body}")
    return failures


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lathe = Path(sys.argv[1]).resolve()
    total = 0
    failures = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        count, failed = check_commands(document, lathe)
        total += count
        failures += failed + check_code(document)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"{total} commands run, {len(failures)} failures")
    return 1 if failures or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
