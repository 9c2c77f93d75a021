"""Hold the broker to its promise over many random scripts: ``make property SEQUENCES=20000 STORE=sqlite``.

Prints how many scripts and moves it played, and of each part of the promise that was broken a short script that breaks
it. Ends with 1 where something was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from multiprocessing import get_context

from tests.money.lots import open_stage, play_lot

_A_LOT = 50  # scripts that one process plays before it tells how far it is


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.money", description=__doc__)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the seed of the first script")
    parser.add_argument("--moves", type=int, default=25, help="at most so many moves a script")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes")
    asked = parser.parse_args()
    last = asked.first + asked.sequences
    lots = [(asked.store, first, min(first + _A_LOT, last), asked.moves) for first in range(asked.first, last, _A_LOT)]
    began, played, moves = time.monotonic(), 0, Counter[str]()
    broken: dict[str, tuple[int, str]] = {}
    with get_context("spawn").Pool(asked.jobs, open_stage, (asked.store,)) as pool:
        for count, made, found in pool.imap_unordered(play_lot, lots):
            played += count
            moves.update(made)
            for rule, told in found.items():
                if rule not in broken:
                    print(told[1], flush=True)
                    broken[rule] = told
            pace = played / (time.monotonic() - began)
            print(f"{played} scripts, {moves.total()} moves, {pace:.1f} a second, broken: {sorted(broken)}", flush=True)
    took = time.monotonic() - began
    print(f"{asked.store}: {played} scripts with {moves.total()} moves in {took:.0f} s; {dict(moves)}")
    print("no part of the promise was broken" if not broken else f"broken: {', '.join(sorted(broken))}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
