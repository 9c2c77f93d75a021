"""Checks the promise of the broker with many random scripts: ``make property SEQUENCES=20000 STORE=sqlite``.

Prints the number of scripts and moves played, each seed that broke a part of the promise, and for each such part a
short script that breaks it. The exit status is 1 if something was broken.
"""

import argparse
import sys
import time
from collections import Counter
from multiprocessing import get_context

from tests.money.lots import open_stage, play_lot
from tests.money.tally import MUST_HAPPEN

_A_LOT = 50  # scripts that one process plays between reports of progress
_TOLD_EVERY = 1000  # scripts


def told_of(figures: Counter[str]) -> str:
    """The figures in one line, the largest first."""
    return ", ".join(f"{figure} {name}" for name, figure in figures.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.money", description=__doc__)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the seed of the first script")
    parser.add_argument("--moves", type=int, default=25, help="at most so many moves a script")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes")
    asked = parser.parse_args()
    last = asked.first + asked.sequences
    lots = [(first, min(first + _A_LOT, last), asked.moves) for first in range(asked.first, last, _A_LOT)]
    began, played, moves, happened = time.monotonic(), 0, Counter[str](), Counter[str]()
    broken = Counter[str]()
    with get_context("spawn").Pool(asked.jobs, open_stage, (asked.store,)) as pool:
        for lot in pool.imap_unordered(play_lot, lots):
            played += lot.scripts
            moves.update(lot.moves)
            happened.update(lot.happened)
            for rule, told in lot.broken:
                print(told, flush=True)
                broken[rule] += 1
            pace = played / (time.monotonic() - began)
            print(
                f"{played} scripts, {moves.total()} moves, {pace:.1f} a second, broken: {told_of(broken) or 'nothing'}",
                flush=True,
            )
            if played % _TOLD_EVERY == 0:
                print(f"  what happened: {told_of(happened)}", flush=True)
    took = time.monotonic() - began
    print(f"{asked.store}: {played} scripts with {moves.total()} moves in {took:.0f} s; {told_of(moves)}")
    print(f"what happened: {told_of(happened)}")
    if never := [name for name in MUST_HAPPEN if not happened[name]]:
        print(f"never happened, so these scripts prove little: {', '.join(never)}")
    print("no part of the promise was broken" if not broken else f"broken: {told_of(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
