"""Plays many scripts in a separate process, for `tests.money.__main__`.

A process started by ``spawn`` cannot import a ``__main__`` module; so this is a separate module.
"""

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.money.moves import Move
from tests.money.play import Stage, drawn, printed, replay, shortest
from tests.money.stores import new_postgres, postgres_store, sqlite_store
from tests.money.world import Violation

_stage: Stage
_shortened = set[str]()
_kept = ExitStack()  # otherwise the store would be closed when nothing refers to its context manager


class PlayedLot(NamedTuple):
    """The result of a lot: the number of scripts; how often each move was made and each event happened
    (`tests.money.tally`); each part of the promise that a seed broke, with a description.
    """

    scripts: int
    moves: Counter[str]
    happened: Counter[str]
    broken: list[tuple[str, str]]


def open_stage(kind: str) -> None:
    """Open this process's store; it is deleted with the process."""
    global _stage
    logging.disable(logging.WARNING)
    _stage = _kept.enter_context(_opened(kind))
    # Searching the objects that all scripts share for garbage would take a fifth of the time.
    gc.collect()
    gc.freeze()
    gc.disable()


@contextmanager
def _opened(kind: str) -> Iterator[Stage]:
    if kind == "sqlite":
        with sqlite_store() as stage:
            yield stage
        return
    with new_postgres() as url, postgres_store(url) as stage:
        yield stage


def play_lot(lot: tuple[int, int, int]) -> PlayedLot:
    """Play the scripts of the seeds from the first to before the second number, each with at most the third number of
    moves.
    """
    first, last, longest = lot
    moves, happened, broken = Counter[str](), Counter[str](), list[tuple[str, str]]()
    for seed in range(first, last):
        script = drawn(seed, longest)
        moves.update(name for name, _ in script)
        for one in replay(_stage, script, happened=happened):
            broken.append((one.rule, _told(seed, script, one)))
    gc.collect()
    return PlayedLot(last - first, moves, happened, broken)


def _told(seed: int, script: Sequence[Move], one: Violation) -> str:
    """The description of what broke, with a short script if this process finds that part of the promise broken for the
    first time.
    """
    if one.rule in _shortened:
        return f"\nseed {seed}: {one}"
    _shortened.add(one.rule)
    script = shortest(_stage, script, one.rule)
    again = [str(found) for found in replay(_stage, script) if found.rule == one.rule]
    return f"\nseed {seed}: {one}\nshorter, {again[:1]}:\n{printed(script)}"
