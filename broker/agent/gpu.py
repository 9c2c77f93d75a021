"""Samples of the machine's NVIDIA accelerators from ``nvidia-smi``, which comes with every driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_FIELDS = "index,utilization.gpu,memory.used,memory.total,power.draw"


@dataclass(frozen=True)
class Sample:
    """One accelerator at one moment: utilisation in percent, memory in MiB, power in watts (None: not reported)."""

    index: int
    utilisation: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(text: str) -> list[Sample]:
    """Parse the output of ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``."""
    samples = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and cells[0].isdigit():
            samples.append(Sample(int(cells[0]), *(_number(cell) for cell in cells[1:])))
    return samples


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


def sample() -> list[Sample]:
    """Every accelerator now; empty if there is none or the driver does not answer within 20 s."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run(  # noqa: S603 (a fixed command line)
            [program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return of_this_job(parse(answer.stdout), os.environ) if answer.returncode == 0 else []


def of_this_job(samples: Sequence[Sample], environment: Mapping[str, str]) -> list[Sample]:
    """The samples of the accelerators assigned to this job, if it has a part of the machine.

    If the variable names accelerators other than by number, all of them.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    numbers = [] if visible is None else [name.strip() for name in visible.split(",") if name.strip()]
    if visible is None or not all(name.isdigit() for name in numbers):
        return list(samples)
    return [one for one in samples if str(one.index) in numbers]
