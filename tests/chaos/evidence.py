"""What is left to tell from what happened, beside the store: marks of the jobs, journals of the agents, manifests."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Manifests:
    """Every manifest that was ever seen in the run folders, and when its file appeared: by job, then by id."""

    runs: Path
    seen: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def look(self) -> None:
        """Old ones are let go of in time, so somebody has to look while they are there."""
        for path in self.runs.glob("*/checkpoints/*/manifest.json"):
            job, checkpoint = path.parts[-4], path.parts[-2]
            if checkpoint not in self.seen[job]:
                try:
                    self.seen[job][checkpoint] = path.stat().st_mtime
                except FileNotFoundError:
                    continue

    def newest(self, job: str, before: float | None = None) -> str | None:
        """The newest there was, at that time."""
        return max((id for id, at in self.seen[job].items() if before is None or at < before), default=None)


@dataclass(frozen=True)
class Attempted:
    """One attempt as its agent recorded it. ``claimed``: when, by the file's date."""

    job: str
    number: int
    claimed: float | None
    entries: tuple[dict[str, Any], ...]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["kind"] == kind]


def attempts(runs: Path, but: Collection[str] = ()) -> Iterator[Attempted]:
    """Every attempt that left something in its run folder. ``but``: jobs whose folders are not to be believed."""
    for folder in (one for one in runs.glob("*/attempts/*") if one.parts[-3] not in but):
        claim, journal = folder / "claim-0.json", folder / "journal.json"
        entries = json.loads(journal.read_text())["entries"] if journal.exists() else []
        yield Attempted(
            folder.parts[-3], int(folder.name), claim.stat().st_mtime if claim.exists() else None, tuple(entries)
        )


def hostile_acts(folder: Path) -> Counter[str]:
    """What hostile jobs did, and how often."""
    return Counter(line for file in folder.glob("*/hostile") for line in file.read_text().split())


def hijacked(folder: Path) -> list[str]:
    """The hostile jobs that had a command of theirs run as that of another job."""
    return sorted(file.parent.name for file in folder.glob("*/hijacked"))


def marks(folder: Path, job_id: str) -> Counter[tuple[int, int, str]]:
    """What the command of a job or task left: attempt, node, what; and how often."""
    lines = [line for file in folder.glob(f"*/{job_id}-[0-9]") for line in file.read_text().splitlines()]
    return Counter((int(attempt), int(rank), what) for attempt, rank, what in (line.split() for line in lines))
