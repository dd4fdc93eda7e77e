"""Turns the GPU suite's report into the record of validated kernels.

usage: record.py REPORT.json VALIDATED.json
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def device() -> dict[str, str]:
    """Name and driver of the GPU that the report is from."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    name, driver = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    return {"name": name, "driver": driver}


def rounded(errors: dict[str, float | None]) -> dict[str, float]:
    return {name: float(f"{error:.2g}") for name, error in errors.items() if error is not None}


def record(report: list[dict[str, Any]]) -> dict[str, Any]:
    kernels: dict[str, dict[str, Any]] = {}
    for entry in report:
        entry["errors"] = rounded(entry["errors"])
        # A kernel that several cases share is recorded with the first.
        kernels.setdefault(entry["source_digest"], entry)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {**device(), "date": date, "kernels": [kernels[digest] for digest in sorted(kernels)]}


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    report, validated = map(Path, sys.argv[1:])
    entry = record(json.loads(report.read_text()))
    document = {"devices": [entry], "pending": []}
    validated.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    print(f"{len(entry['kernels'])} kernels recorded for {entry['name']} in {validated}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
