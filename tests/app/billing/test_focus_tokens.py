"""FOCUS exports of machines that serve tokens: allocated charges add up to their origin; all else equals it."""

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from broker.app.billing import focus
from broker.app.billing.focus import export
from broker.app.wiring import Broker
from broker.core.events.agent_events import ServedModel, TokensServed
from broker.core.values.clock import ManualClock
from tests.actors import with_clock
from tests.past import HOUR, finished

BEGINS = datetime(2026, 10, 10, tzinfo=UTC)
UP = BEGINS + timedelta(minutes=10)  # 110 minutes on a machine of $10 an hour, settled after 50 minutes and at the end
SUMMED = (
    "BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingCurrencyEffectiveCost", "ConsumedQuantity",
    "PricingQuantity",
)  # fmt: skip
OWN = ("AllocatedMethodDetails", "AllocatedMethodId", "AllocatedResourceId")


def exported(broker: Broker, out: Path, version: str) -> list[dict[str, str]]:
    export(broker, version, "2026-10", out)
    with out.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("version", "prefix"), [("1.2", "x_"), ("1.4", "")])
def test_allocated_charges_add_up_to_their_origin(
    new_broker: Callable[[], Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, prefix: str
) -> None:
    qwen = ServedModel(model="Qwen3-32B", input=9_000_001, cached=2_500_000, output=600_001, input_ms=7, output_ms=6)
    until = UP + timedelta(minutes=70)
    served = TokensServed(since=UP, until=until, busy_ms=45 * 60_000 + 1, models=(qwen,))
    broker = with_clock(new_broker(), ManualClock(BEGINS + 10 * HOUR))
    finished(broker.store, 0, BEGINS, [served])
    with monkeypatch.context() as whole:
        whole.setattr(focus, "allocated_charges", lambda row, *_: [row])
        origins = exported(broker, tmp_path / "origins.csv", version)
    rows = exported(broker, tmp_path / "allocated.csv", version)
    assert len(origins) == 2
    assert all(not row[prefix + name] for row in origins for name in OWN)
    for origin in origins:
        parts = [row for row in rows if row["x_MovementId"] == origin["x_MovementId"]]
        assert [row[f"{prefix}AllocatedResourceId"] for row in parts] == [
            "(idle)", "Qwen3-32B/input", "Qwen3-32B/output"
        ]  # fmt: skip
        for name in SUMMED:
            assert sum(Decimal(row[name]) for row in parts) == Decimal(origin[name]), name
        for row in parts:
            own = {*SUMMED, *(prefix + name for name in OWN), "BillingAccountId"}
            assert {name: row[name] for name in row if name not in own} == {
                name: origin[name] for name in row if name not in own
            }
            assert row[f"{prefix}AllocatedMethodId"] == "gpubroker-tokens-1"
            product = Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"])
            assert abs(product - Decimal(row["ListCost"])) < Decimal("1e-6")
    elements = [json.loads(row[f"{prefix}AllocatedMethodDetails"])["Elements"][0] for row in rows]
    assert sum(one["UsageQuantity"] for one in elements) == qwen.input + qwen.output
    assert sum(one["AllocatedRatio"] for one in elements) == pytest.approx(2, abs=1e-8)
