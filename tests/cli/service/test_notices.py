"""`gpubroker notices` as people run it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.core.notices import Notice
from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.cli.conftest import Gpubroker


@pytest.fixture
def waiting(home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    store.outbox.add(Notice("budget/nlp/1", "80 % is spent", "of nlp"), ["ops"], datetime.now(UTC))
    store.close()


@pytest.mark.usefixtures("waiting")
def test_what_fails_is_shown_and_can_be_tried_again(gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", "json://127.0.0.1:9/none")
    assert "everything was delivered" in gpubroker("notices", "--failed").out
    done = gpubroker("notices", "--retry", "--json")
    assert done.code == 5
    assert done.json["errors"] == {"ops": "the service cannot be reached"}
    (failed,) = gpubroker("notices", "--failed", "--json").json["notices"]
    assert (failed["target"], failed["title"], failed["tries"]) == ("ops", "80 % is spent", 1)
    assert "not yet sent to ops, tried 1 time" in gpubroker("notices").out
    assert gpubroker("notices", "--retry", "--json").json["retried"] == 1


@pytest.mark.usefixtures("waiting")
def test_what_waits_for_somebody_who_is_gone_is_shown_with_the_reason(gpubroker: Gpubroker) -> None:
    shown = gpubroker("notices", "--failed").out
    assert "not yet sent to ops" in shown
    assert "no such recipient: GPUBROKER_NOTIFY__OPS is not set" in " ".join(shown.split())


def test_a_route_to_nobody_is_a_mistake(gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_ROUTES__OPS__AT_LEAST", "failure")
    found = gpubroker("notices")
    assert found.code == 2
    assert "unknown recipient 'ops'" in found.err


def test_a_wrong_route_says_what_is_wrong(gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", "json://127.0.0.1:9/none")
    monkeypatch.setenv("GPUBROKER_ROUTES__OPS__AT_LEAST", "loud")
    found = gpubroker("notices")
    assert found.code == 2
    assert "AT_LEAST" in found.err
