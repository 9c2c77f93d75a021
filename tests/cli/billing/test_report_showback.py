"""`gpubroker report showback` as people run them."""

from pathlib import Path

import pytest

from broker.core.values.clock import SystemClock
from broker.ledger.entries import Movement
from broker.store import open_store
from tests.cli.conftest import Gpubroker
from tests.focus_ledger import SEPTEMBER, post_two_months, spent


@pytest.fixture
def ran(home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    post_two_months(store)
    store.close()


@pytest.mark.usefixtures("ran")
def test_shared_cost_is_divided_by_weights(gpubroker: Gpubroker) -> None:
    how = ("--shared", "fixed", "--shared-team", "nlp", "--fixed", "web=2,vision=1")
    found = gpubroker("report", "showback", "--month", "2026-09", *how, "--json").json
    assert {row["team"]: row["shared"] for row in found["rows"]} == {
        "nlp": "-29.00",
        "web": "19.333333",
        "vision": "9.666667",
    }
    assert found["total"]["total"] == "36.25"
    assert {row["team"]: (row["on_own"], row["rented"]) for row in found["rows"]} == {
        "nlp": ("0.00", "29.00"),
        "web": ("7.25", "0.00"),
        "vision": ("0.00", "0.00"),
    }
    shown = gpubroker("report", "showback", "--month", "2026-09", *how).out
    assert "total $36.25" in shown
    assert "bought in advance, charged to nobody: $700.00" in shown


@pytest.mark.usefixtures("ran")
def test_a_statement_is_made_shown_and_listed(gpubroker: Gpubroker, home: Path) -> None:
    assert "no month is frozen" in gpubroker("report", "showback", "--frozen").out
    assert "no statement of 2026-09" in gpubroker("report", "showback", "--month", "2026-09", "--frozen").err
    made = gpubroker("report", "showback", "--month", "2026-09", "--freeze", "--json").json
    assert made["charged"] == "36.25"
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    with store.writing() as tx:
        tx.post(spent(8, "5", SEPTEMBER, SEPTEMBER, SEPTEMBER, movement=Movement.ADJUST))
    store.close()
    shown = gpubroker("report", "showback", "--month", "2026-09", "--frozen").out
    assert "charged for 2026-09 (UTC): $36.25" in shown
    assert "correction charged with the next statement: nlp $5.00" in shown
    (listed,) = gpubroker("report", "showback", "--frozen", "--json").json["statements"]
    assert (listed["month"], listed["charged"]) == ("2026-09", "36.25")
    again = gpubroker("report", "showback", "--month", "2026-09", "--freeze")
    assert again.code == 2
    assert "it stays as it is" in again.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("showback", "--month", "2026-09", "--idle", "fairly"),
        ("showback", "--month", "2026-09", "--idle", "fixed", "--fixed", "nlp=most"),
        ("showback", "--month", "2026-09", "--idle", "fixed", "--fixed", "nlp=1,nlp=2"),
        ("showback", "--freeze"),
        ("showback", "--frozen", "--month", "2026-09", "--idle", "even"),
        ("showback", "--frozen", "--freeze", "--month", "2026-09"),
        ("showback", "--frozen", "--timezone", "UTC"),
    ],
)
def test_what_makes_no_sense_is_refused(gpubroker: Gpubroker, arguments: tuple[str, ...]) -> None:
    assert gpubroker("report", *arguments).code == 2
