"""Capacity that was bought elsewhere is recorded by people who might buy it, within the terms of their policies."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.capacity.capacity import add, checklist
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, BOB, EVERYBODYS
from tests.empty_store import empty_store

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
POLICY = """\
version: 1
policy: buying
guardrails:
  - name: shop
    purchases: {max_commitment: $9000, max_term: 40d, providers: [coreweave, aws], buyers: [ann], approvers: [olga]}
"""
HELD = Holding(
    HoldingKind.RESERVATION, "H100", 8, "coreweave", "us-east", NOW, NOW + timedelta(days=30), hourly=Money.usd("10")
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    settings = Settings(home=tmp_path, store=empty_store(tmp_path / "store.db"), runs=(tmp_path / "runs").as_uri())
    made = Broker(settings, registries(), EVERYBODYS, clock=ManualClock(NOW))
    yield made
    made.close()


def test_what_ann_may_buy_she_may_record(broker: Broker) -> None:
    assert add(broker, HELD, by=BOB).number == 1, "without such a guardrail everybody may"
    broker.store.activate_policy({"policy.yaml": POLICY}, by="olga")
    assert add(broker, HELD, by=ANN).number == 2
    owned = replace(HELD, kind=HoldingKind.OWNED, provider="our lab")
    assert add(broker, owned, by=BOB).number == 3, "it is bought from nobody here"


@pytest.mark.parametrize(
    ("by", "change", "told"),
    [
        (BOB, {}, "bob may not buy capacity; ann may"),
        (ANN, {"provider": "lambda"}, "not from lambda"),
        (ANN, {"ends": NOW + timedelta(days=41)}, "at most 40d is allowed"),
        (ANN, {"upfront": Money.usd(1801)}, "the purchase may cost $9,001.00; the limit is $9,000.00"),
    ],
)
def test_what_a_policy_does_not_let_buy_is_not_recorded(
    broker: Broker, by: Actor, change: dict[str, Any], told: str
) -> None:
    broker.store.activate_policy({"policy.yaml": POLICY}, by="olga")
    with pytest.raises(NotAllowed, match="cannot be recorded") as refused:
        add(broker, replace(HELD, **change), by=by)
    assert told in str(refused.value)
    assert broker.store.holdings() == []


def test_a_misspelt_provider_has_no_checklist(broker: Broker) -> None:
    with pytest.raises(UnknownName, match="did you mean 'azure'"):
        checklist(broker, "azur")
    assert checklist(broker, "azur", unlike=True).provider == "azur"
    assert checklist(broker, "coreweave").provider == "coreweave", "nothing known is like it"
    assert checklist(broker, "AWS").provider == "aws"
    with pytest.raises(InvalidInput, match="empty"):
        checklist(broker, " ")
    told = [step.command for step in checklist(broker, "our; site").steps]
    assert any("--provider 'our; site' --site" in command for command in told), "people copy it into a shell"
