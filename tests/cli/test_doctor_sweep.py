"""`gpubroker doctor --sweep`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.store import Store

HOURS_AGO = datetime.now(UTC) - timedelta(hours=5)


@pytest.fixture
def orphan(store: Store) -> None:
    """Money that a job holds which is not on record."""
    with store.writing() as tx:
        tx.post(
            move(
                Movement.HOLD, Money.usd(5), movement_id="lost/hold/1/cash", money=MoneyKind.CASH, at=HOURS_AGO,
                covers=(HOURS_AGO, HOURS_AGO), tags=Tags("lost", "ann"),
            )
        )  # fmt: skip


def held(store: Store) -> Money:
    with store.reading() as look:
        return look.balance("lost")[MoneyKind.CASH].held


def test_nothing_is_left_over(gpubroker: Any, home: Path) -> None:
    done = gpubroker("doctor", "--sweep")
    assert done.code == 0
    assert "no orphans" in done.out
    assert gpubroker("doctor", "--sweep", "--end", "--yes").code == 0


def test_it_says_what_it_cannot_see_on_this_machine(gpubroker: Any, write: Any) -> None:
    done = gpubroker("submit", write("job.yaml", "run: 'true'\n"), "--yes", "--detach")
    assert done.code == 0, done.err
    assert "cannot be recognized" in gpubroker("doctor", "--sweep").out


def test_it_is_a_dry_run_unless_told(gpubroker: Any, orphan: None, store: Store) -> None:
    done = gpubroker("doctor", "--sweep")
    assert done.code == 2
    assert "lost/cash" in done.out
    assert "Nothing was changed" in done.out
    document = gpubroker("doctor", "--sweep", "--json").json
    assert document["orphans"] == 1
    (found,) = document["found"]
    assert (found["kind"], found["standing"], found["amount"], found["ended"]) == (
        "hold_without_either", "orphan", "5.00", False,
    )  # fmt: skip
    assert held(store) == Money.usd(5)


def test_ending_needs_a_yes(gpubroker: Any, orphan: None, store: Store) -> None:
    done = gpubroker("doctor", "--sweep", "--end")
    assert done.code == 2
    assert "add --yes" in done.err
    assert held(store) == Money.usd(5)
    document = gpubroker("doctor", "--sweep", "--end", "--yes", "--json")
    assert document.code == 0
    assert [one["ended"] for one in document.json["found"]] == [True]
    assert held(store) == Money.ZERO
    assert gpubroker("doctor", "--sweep").code == 0


@pytest.mark.parametrize("option", ["--end", "--yes"])
def test_ending_goes_with_a_sweep(gpubroker: Any, home: Path, option: str) -> None:
    done = gpubroker("doctor", option)
    assert done.code == 2
    assert "--sweep" in done.err
