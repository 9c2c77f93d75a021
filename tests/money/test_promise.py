"""The promise as a property: over random sequences of all possible events, spend per budget and period never exceeds
its amount, every hold is released once, the ledger balances, and nothing is launched that the rules in force did not
judge.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.counts import FULL
from tests.money.moves import MOVES, Move
from tests.money.play import Stage, drawn, printed, replay, shortest
from tests.money.promise import broken
from tests.money.stores import postgres_store, sqlite_store
from tests.money.world import MoneyWorld

OFTEN = ("launches", "holds", "period ends", "denials", "moves refused")  # in at least one of ten scripts on average
SEQUENCES = int(os.environ.get("GPUBROKER_TEST_SEQUENCES", "100" if FULL else "5"))
# Parts of the promise that are known to be broken.
KNOWN: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def on_sqlite() -> Iterator[Stage]:
    logging.disable(logging.WARNING)
    with sqlite_store() as stage:
        yield stage
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def on_postgres(new_postgres: Callable[[], str]) -> Iterator[Stage]:
    logging.disable(logging.WARNING)
    with postgres_store(new_postgres()) as stage:
        yield stage
    logging.disable(logging.NOTSET)


def hold_to_it(stage: Stage, sequences: int, first: int = 0) -> None:
    """Play the scripts of ``sequences`` seeds; the first one that breaks the promise fails the test, with a shortened
    script.
    """
    happened = Counter[str]()
    for seed in range(first, first + sequences):
        found = replay(stage, drawn(seed), KNOWN, happened)
        if found:
            script = shortest(stage, drawn(seed), found[0].rule, KNOWN)
            pytest.fail(f"seed {seed}: {found[0]}\n{printed(script)}", pytrace=False)
    seldom = [name for name in OFTEN if happened[name] * 10 < sequences]
    assert not seldom, f"too little was put to the test: {happened}"


def test_scripts_of_many_seeds_keep_the_promise(on_sqlite: Stage) -> None:
    hold_to_it(on_sqlite, SEQUENCES)


@pytest.mark.system
@pytest.mark.timeout(3600)
def test_scripts_of_many_seeds_keep_the_promise_on_postgresql(on_postgres: Stage) -> None:
    hold_to_it(on_postgres, max(SEQUENCES // 4, 1), first=10_000)


@pytest.mark.timeout(3600)
def test_hypothesis_finds_no_sequence_that_breaks_the_promise(on_sqlite: Stage) -> None:
    run_state_machine_as_test(
        lambda: _PromiseMachine(on_sqlite),  # type: ignore[arg-type]  # it calls what makes one, be it a class or not
        settings=settings(
            max_examples=SEQUENCES // 5 if FULL else 3, stateful_step_count=20, deadline=None,
            suppress_health_check=list(HealthCheck), print_blob=False,
        ),
    )  # fmt: skip


class _PromiseMachine(RuleBasedStateMachine):
    """Hypothesis chooses the moves; its report is the script."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        store, empty = stage
        empty()
        self.world = MoneyWorld(store, ignoring=KNOWN)
        self.script: list[Move] = []

    def make(self, name: str, said: dict[str, Any]) -> None:
        self.script.append((name, said))
        self.world.do(name, said)
        if self.world.found:
            raise self.world.found[0]

    def teardown(self) -> None:
        if self.world.found:
            return
        self.world.drain()
        found = broken(self.world)
        assert not found, f"{found[0]}\n{printed(self.script)}"


def _values(name: str) -> dict[str, st.SearchStrategy[Any]]:
    return {key: st.sampled_from(list(values)) for key, values in MOVES[name].items()}


def _add(name: str) -> None:
    def move(self: _PromiseMachine, said: dict[str, Any]) -> None:
        self.make(name, said)

    move.__name__ = name
    strategy = st.fixed_dictionaries(_values(name))
    begins = name in ("policy", "submit")
    setattr(_PromiseMachine, name, rule(said=strategy)(move))
    if begins:
        setattr(_PromiseMachine, f"first_{name}", initialize(said=strategy)(move))


for _name in MOVES:
    _add(_name)
