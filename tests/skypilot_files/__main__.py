"""SkyPilot's task files, here and there: python -m tests.skypilot_files FOLDER [--json] [--seed 1]

Reads every YAML file below FOLDER with this project's reader and with the installed SkyPilot, compares them field by
field, and plans each on a market that is drawn from the seed: the offers that serve the job here must be those that fit
what SkyPilot was asked for. Variables that a file leaves open are given a value, as `--env` would; local files that it
names are made in a folder of their own. Needs the extra `skypilot`; no network.

Exit status: 0 if 95 % of the files that describe jobs are accepted, equal and planned as meant; otherwise 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.skypilot_files.comparing import NOW
from tests.skypilot_files.judging import FileVerdict, TaskFile, judge, read_folder
from tests.skypilot_files.market import Wanted, machines, offers, write_catalogue
from tests.skypilot_files.reading import read_there

GOAL = 0.95


def verdicts(files: Sequence[TaskFile], seed: int) -> list[FileVerdict]:
    """What becomes of each file."""
    wanted = Wanted()
    for file in files:
        file.tell(wanted)
    market = machines(seed, wanted)
    with tempfile.TemporaryDirectory(prefix="skypilot-files-") as home:
        write_catalogue(market, Path(home))
        for file in files:
            for path in file.local:
                _make(Path(home), path)
        answers = read_there([(file.text, file.values) for file in files], Path(home))
    there = offers(market, NOW)
    return [judge(file, answer, there) for file, answer in zip(files, answers, strict=True)]


def _make(home: Path, path: str) -> None:
    """A file or folder of that name within ``home``; others are left alone."""
    if path.startswith("/") or ".." in Path(path).parts:
        return
    place = home / path.removeprefix("~/")
    if place.suffix and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
    elif not place.exists():
        place.mkdir(parents=True, exist_ok=True)


def document(found: Sequence[FileVerdict]) -> dict[str, Any]:
    """The result as plain data."""
    jobs = [one for one in found if one.kind == "job" and one.outcome != "refused there"]
    keys = sorted({key for one in found for key in one.file.keys})
    return {
        "files": len(found),
        "refused_by_skypilot": sum(one.outcome == "refused there" for one in found),
        "kinds": dict(Counter(one.kind for one in found if one.outcome != "refused there")),
        "jobs": len(jobs),
        "jobs_accepted": sum(one.accepted for one in jobs),
        "jobs_as_meant": sum(one.as_meant for one in jobs),
        "accepted": sum(one.accepted for one in found),
        "keys": {key: _of_key(key, found) for key in keys},
        "not_as_meant": [
            {
                "file": one.file.name,
                "kind": one.kind,
                "outcome": one.outcome,
                "reason": one.reason,
                "differing": {field: list(map(str, pair)) for field, pair in one.differing.items()},
                "plan": one.plan,
            }
            for one in found
            if not one.as_meant
        ],
        "plans": {one.file.name: one.plan for one in found if one.as_meant},
    }


def _of_key(key: str, found: Sequence[FileVerdict]) -> dict[str, int]:
    those = [one for one in found if key in one.file.keys]
    return {
        "files": len(those),
        "accepted": sum(one.accepted for one in those),
        "equal": sum(one.outcome == "equal" for one in those),
        "planned": sum(one.planned for one in those),
        "refused": sum(one.outcome == "refused" for one in those),
        "refused_by_skypilot": sum(one.outcome == "refused there" for one in those),
    }


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    columns = ("files", "accepted", "equal", "planned", "refused", "refused_by_skypilot")
    lines = [f"{'key':34}" + "".join(f"{one.replace('_by_skypilot', ' there'):>15}" for one in columns)]
    lines += [
        f"{key:34}" + "".join(f"{counts[one] or '':>15}" for one in columns) for key, counts in result["keys"].items()
    ]
    lines.append("")
    for one in result["not_as_meant"]:
        why = one["reason"] or "; ".join(f"{field}: {a} here, {b} there" for field, (a, b) in one["differing"].items())
        lines.append(f"{one['file']}: {one['kind']}, {one['outcome']}: {why or one['plan']}")
    share = result["jobs_as_meant"] / result["jobs"] if result["jobs"] else 0.0
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result["kinds"].items()))
    lines += [
        "",
        f"{result['files']} files; SkyPilot itself refuses {result['refused_by_skypilot']}; the others: {kinds}",
        f"{result['jobs_accepted']} of {result['jobs']} that describe jobs are accepted, {result['jobs_as_meant']}"
        f" ({share:.1%}) equal in every field and planned as meant",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.skypilot_files", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    files = read_folder(asked.folder)
    if not files:
        print(f"no YAML files below {asked.folder}", file=sys.stderr)
        return 2
    result = document(verdicts(files, asked.seed))
    print(json.dumps(result, indent=1) if asked.json else table(result))
    return 0 if result["jobs_as_meant"] >= GOAL * result["jobs"] else 1


if __name__ == "__main__":
    sys.exit(main())
