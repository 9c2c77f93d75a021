"""``python -m tests.mutants``: how well the tests of the money rooms bite. See README.md beside this file."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from time import monotonic

from tests.mutants.known import Known, known_mutants
from tests.mutants.mutant import Mutant, diff, mutants_of
from tests.mutants.rooms import ROOT, TESTS, modules
from tests.mutants.running import KILLED, SURVIVED, TIMED_OUT, UNTRIED, MutantOutcome, RunLimits, run

BASE = ROOT / "tests" / "mutants" / "base"
# On changed lines, so many survivors without a reason pass in a file: one of three mutants says little in percent.
SPARED = 2


def main() -> int:
    options = _options()
    began = monotonic()
    rooms = modules()
    chosen = options.module or rooms
    if strange := set(chosen) - set(rooms):
        sys.exit(f"not a money room: {', '.join(sorted(strange))}; one of:\n  " + "\n  ".join(rooms))
    since = options.since or (_last_complete() if options.changed else "")
    if since:
        changed = _changed(since, chosen)
        chosen = [module for module in chosen if changed[module]]  # to parse the others takes minutes
    mutants = [mutant for module in chosen for mutant in mutants_of(module, (ROOT / module).read_text("utf-8"))]
    if since:
        mutants = [mutant for mutant in mutants if changed[mutant.module].intersection(mutant.lines)]
    known = known_mutants()
    if not mutants:
        print(f"no mutant on the lines that changed since {since}" if since else "no mutants")
        return 0
    tried = mutants if options.known else [mutant for mutant in mutants if mutant.key not in known]
    if options.minutes:
        # What is cut off by the time should be a bit of everything.
        tried = [mutant for start in range(20) for mutant in tried[start::20]]
    limits = RunLimits(options.jobs, began + options.minutes * 60 if options.minutes else float("inf"))
    outcomes: list[MutantOutcome] = []
    for outcome in run(tried, rooms, options.tests or TESTS, limits):
        outcomes.append(outcome)
        if outcome.state == SURVIVED and outcome.mutant.key not in known:
            print(_survivor(outcome), flush=True)
        if options.verbose:
            print(f"{outcome.state} {outcome.mutant.module}:{outcome.mutant.line} by {outcome.by} {outcome.tests}\n"
                  f"{diff(outcome.mutant)}", flush=True)  # fmt: skip
    print(_table(mutants, outcomes, known))
    print(f"{len(tried)} mutants in {(monotonic() - began) / 60:.1f} minutes")
    return verdict(mutants, outcomes, known, options.least, SPARED if since else None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--module", action="append", help="only this file; may be given several times")
    parser.add_argument("--since", metavar="COMMIT", help="only lines that differ from this commit")
    parser.add_argument("--changed", action="store_true", help="only lines that differ from the last complete run")
    parser.add_argument("--minutes", type=float, help="begin no mutant after so long, and try each with fewer tests")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="mutants at once")
    parser.add_argument("--tests", action="append", metavar="PATH", help="only tests from here")
    parser.add_argument("--known", action="store_true", help="try the known survivors as well")
    parser.add_argument("--least", type=float, default=95.0, help="the score in percent that each file must reach")
    parser.add_argument("--verbose", action="store_true", help="print the outcome of each mutant")
    return parser.parse_args()


def _last_complete() -> str:
    """The commit of the last complete run, as BASE notes it; where this clone does not have it, the one before."""
    for commit in (BASE.read_text("utf-8").strip(), "HEAD~1"):
        command = ["git", "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        if found:
            print(f"mutants on lines that changed since {found[:12]}")
            return found
    sys.exit("this clone has no history to compare with: fetch more of it, or name a commit with --since")


def _changed(commit: str, chosen: Sequence[str]) -> dict[str, set[int]]:
    """The lines of each file that differ from a commit."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", commit, "--", *chosen]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, set[int]] = defaultdict(set)
    file = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found[file].update(range(first, first + count))
    return found


def _survivor(outcome: MutantOutcome) -> str:
    mutant, (ran, of) = outcome.mutant, outcome.tests
    how = "no test runs this line" if not of else f"{ran} of {of} tests that run this line were tried"
    return f"survived: {mutant.module}:{mutant.line} in {mutant.function or 'the module'} ({how})\n{diff(mutant)}"


def _table(mutants: Sequence[Mutant], outcomes: Sequence[MutantOutcome], known: Known) -> str:
    rows: list[tuple[str, ...]] = [
        ("module", "mutants", "killed", "timed out", "survived", "known", "untried", "score")
    ]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        state = "known" if outcome.state == SURVIVED and outcome.mutant.key in known else outcome.state
        counts[outcome.mutant.module][state] += 1
    tried = {outcome.mutant.key for outcome in outcomes}
    for mutant in mutants:
        if mutant.key in known and mutant.key not in tried:
            counts[mutant.module]["known"] += 1
    total: Counter[str] = Counter()
    for module, one in counts.items():
        rows.append(_row(module, one))
        total += one
    rows.append(_row("all", total))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        " · ".join(text.ljust(width) if index == 0 else text.rjust(width) for index, (text, width) in
                   enumerate(zip(row, widths, strict=True)))
        for row in rows
    )  # fmt: skip


def _row(name: str, counts: Counter[str]) -> tuple[str, ...]:
    states = [counts[state] for state in (KILLED, TIMED_OUT, SURVIVED, "known", UNTRIED)]
    judged = counts.total() > counts[UNTRIED]
    return (name, str(counts.total()), *map(str, states), f"{score(counts):.1f} %" if judged else "–")


def score(counts: Counter[str]) -> float:
    """The percentage that was killed of those tried and known, in which a mutant that makes a test hang is killed."""
    judged = counts.total() - counts[UNTRIED]
    return 100 * (counts[KILLED] + counts[TIMED_OUT]) / judged if judged else 100.0


def verdict(
    mutants: Sequence[Mutant], outcomes: Sequence[MutantOutcome], known: Known, least: float, spared: int | None = None
) -> int:
    """0 when enough was killed in each file; 1 when not, or when a mutant that is noted as surviving is killed.

    ``least``: the percentage. A known survivor counts as one that was not killed, so that no file gets by on reasons.
    ``spared``, for a few changed lines: survivors with a reason do not count, and so many without pass in a file.
    """
    killed = [outcome.mutant for outcome in outcomes if outcome.state in (KILLED, TIMED_OUT)]
    stale = [mutant for mutant in killed if mutant.key in known]
    for mutant in stale:
        print(f"killed, though known.toml says that it survives: {mutant.module} {mutant.function}\n{diff(mutant)}")
    untried = sum(outcome.state == UNTRIED for outcome in outcomes)
    if untried:
        print(f"{untried} mutants were not tried, or not with all tests, for want of time: `make mutants` does")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        if spared is None or outcome.state != SURVIVED or outcome.mutant.key not in known:
            counts[outcome.mutant.module][outcome.state] += 1
    if spared is None:
        tried = {outcome.mutant.key for outcome in outcomes}
        counts_too = (mutant for mutant in mutants if mutant.key in known and mutant.key not in tried)
        for mutant in counts_too:
            counts[mutant.module][SURVIVED] += 1
    low = [module for module, one in counts.items() if score(one) < least and one[SURVIVED] > (spared or 0)]
    if low:
        print(f"less than {least:.0f} % killed: {', '.join(low)}")
    return 1 if low or stale else 0


if __name__ == "__main__":
    sys.exit(main())
