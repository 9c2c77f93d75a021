"""`gpubroker report anomalies` as people run it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.cli.conftest import Gpubroker
from tests.focus_ledger import DAY, RUN, spent

YESTERDAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - DAY


@pytest.fixture
def risen(home: Path) -> None:
    """Forty days of $100, and $400 yesterday."""
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    with store.writing() as tx:
        for day in range(41):
            since, tags = YESTERDAY - day * DAY, replace(RUN, job_id="usual" if day else "loop")
            tx.post(spent(day, "100" if day else "400", since, since + timedelta(hours=1), since, tags=tags))
    store.close()


@pytest.mark.usefixtures("risen")
def test_an_incident_is_shown_and_answered(gpubroker: Gpubroker) -> None:
    first = f"{YESTERDAY:%Y-%m-%d}"
    shown = gpubroker("report", "anomalies").out
    assert f"nlp, {first}: $400.00, $300.00 more than usual" in shown
    assert "loop of ann: $400.00 more" in shown
    answer = ("report", "anomalies", "--team", "nlp", "--answer", "planned")
    assert gpubroker(*answer).code == 2
    assert "expected a day such as" in gpubroker(*answer, "--day", "monday").err
    assert "no incident of nlp" in gpubroker(*answer, "--day", "2026-01-01").err


def test_without_spending_there_is_nothing_to_show(gpubroker: Gpubroker) -> None:
    assert "no day of the last month" in gpubroker("report", "anomalies").out
