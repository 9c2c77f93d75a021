"""``python -m tests.mutants``: how well the tests of the money rooms bite. See README.md beside this file."""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from time import monotonic

from tests.mutants.mutant import diff, mutants_of
from tests.mutants.rooms import ROOT, TESTS, modules
from tests.mutants.running import KILLED, SURVIVED, TIMED_OUT, UNTRIED, MutantOutcome, RunLimits, run

# On changed lines, so many survivors pass in a file: one of three mutants says little in percent.
SPARED = 2


def main() -> int:
    options = _options()
    began = monotonic()
    rooms = modules()
    chosen = options.module or rooms
    if strange := set(chosen) - set(rooms):
        sys.exit(f"not a money room: {', '.join(sorted(strange))}; one of:\n  " + "\n  ".join(rooms))
    if since := options.since:
        changed = _changed(since, chosen)
        chosen = [module for module in chosen if changed[module]]  # to parse the others takes minutes
    mutants = [mutant for module in chosen for mutant in mutants_of(module, (ROOT / module).read_text("utf-8"))]
    if since:
        mutants = [mutant for mutant in mutants if changed[mutant.module].intersection(mutant.lines)]
    if not mutants:
        print(f"no mutant on the lines that changed since {since}" if since else "no mutants")
        return 0
    if options.minutes:
        # What is cut off by the time should be a bit of everything.
        mutants = [mutant for start in range(20) for mutant in mutants[start::20]]
    limits = RunLimits(options.jobs, began + options.minutes * 60 if options.minutes else float("inf"))
    outcomes: list[MutantOutcome] = []
    for outcome in run(mutants, rooms, options.tests or TESTS, limits):
        outcomes.append(outcome)
        if outcome.state == SURVIVED:
            print(_survivor(outcome), flush=True)
        if options.verbose:
            print(f"{outcome.state} {outcome.mutant.module}:{outcome.mutant.line} by {outcome.by} {outcome.tests}\n"
                  f"{diff(outcome.mutant)}", flush=True)  # fmt: skip
    counts = defaultdict[str, Counter[str]](Counter)
    for outcome in outcomes:
        counts[outcome.mutant.module][outcome.state] += 1
    print(_table(counts))
    print(f"{len(mutants)} mutants in {(monotonic() - began) / 60:.1f} minutes")
    return verdict(counts, options.least, SPARED if since else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--module", action="append", help="only this file; may be given several times")
    parser.add_argument("--since", metavar="COMMIT", help="only lines that differ from this commit")
    parser.add_argument("--minutes", type=float, help="begin no mutant after so long, and try each with fewer tests")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="mutants at once")
    parser.add_argument("--tests", action="append", metavar="PATH", help="only tests from here")
    parser.add_argument("--least", type=float, default=95.0, help="the score in percent that each file must reach")
    parser.add_argument("--verbose", action="store_true", help="print the outcome of each mutant")
    return parser.parse_args()


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


def _table(counts: Mapping[str, Counter[str]]) -> str:
    rows: list[tuple[str, ...]] = [("module", "mutants", "killed", "timed out", "survived", "untried", "score")]
    rows += [_row(module, one) for module, one in counts.items()]
    rows.append(_row("all", sum(counts.values(), Counter[str]())))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        " · ".join(text.ljust(width) if index == 0 else text.rjust(width) for index, (text, width) in
                   enumerate(zip(row, widths, strict=True)))
        for row in rows
    )  # fmt: skip


def _row(name: str, counts: Counter[str]) -> tuple[str, ...]:
    states = [counts[state] for state in (KILLED, TIMED_OUT, SURVIVED, UNTRIED)]
    judged = counts.total() > counts[UNTRIED]
    return (name, str(counts.total()), *map(str, states), f"{score(counts):.1f} %" if judged else "–")


def score(counts: Counter[str]) -> float:
    """The percentage that was killed of those tried, in which a mutant that makes a test hang is killed."""
    judged = counts.total() - counts[UNTRIED]
    return 100 * (counts[KILLED] + counts[TIMED_OUT]) / judged if judged else 100.0


def verdict(counts: Mapping[str, Counter[str]], least: float, spared: int) -> int:
    """0 when enough was killed in each file, else 1. ``least``: the percentage; ``spared``: survivors that pass in any
    case."""
    if untried := sum(one[UNTRIED] for one in counts.values()):
        print(f"{untried} mutants were not tried, or not with all tests, for want of time: `make mutants` does")
    low = [module for module, one in counts.items() if score(one) < least and one[SURVIVED] > spared]
    if low:
        print(f"less than {least:.0f} % killed: {', '.join(low)}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
