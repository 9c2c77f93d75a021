"""Samples of the machine's NVIDIA accelerators from ``nvidia-smi``, which comes with every driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_FIELDS = "index,utilization.gpu,memory.used,memory.total,power.draw,uuid"


@dataclass(frozen=True)
class Sample:
    """One accelerator at one moment: utilization in percent, memory in MiB, power in watts (None: not reported)."""

    index: int
    utilisation: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None
    uuid: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "uuid"}


def parse(text: str) -> list[Sample]:
    """Parse the output of ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``."""
    samples = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) in (5, 6) and cells[0].isdigit():
            percent, used, memory, power = (_number(cell) for cell in cells[1:5])
            samples.append(Sample(int(cells[0]), percent, used, memory, power, "".join(cells[5:])))
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
    return assigned_samples(parse(answer.stdout), os.environ) if answer.returncode == 0 else []


def assigned_samples(samples: Sequence[Sample], environment: Mapping[str, str]) -> list[Sample]:
    """The samples of the accelerators assigned to this job, by number or by (the start of) their UUID; all of them if
    it has the whole machine. Empty, which is unknown use, if one of them has no sample of its own: a MIG partition has
    none, and a card of which the job has shards is used by others, too.
    """
    if "SLURM_SHARDS_ON_NODE" in environment:
        return []
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(samples)
    own = []
    for name in filter(None, map(str.strip, visible.split(","))):
        by_uuid = name.startswith("GPU-")
        matches = [gpu for gpu in samples if (gpu.uuid.startswith(name) if by_uuid else name == str(gpu.index))]
        if len(matches) != 1:
            return []
        own += matches
    return own
