"""When a reason is another one, and when only its figures went on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.events.wait_reasons import (
    MoneyRefused,
    NothingFits,
    PolicyDenies,
    SecretsMissing,
    StrategyWaits,
    WaitReason,
    WaitsForPaid,
    same_reason,
)
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money

HOURS = RuleObjection("hours", "night", "closed", "it is 12:01, too late", "team.yaml:3")
PAID = WaitsForPaid(
    pool="ours/box",
    instance_type="box",
    capacity_type=CapacityType.OWNED,
    until=datetime(2026, 1, 1, tzinfo=UTC),
    saves=Money.usd("3"),
    an_hour=False,
    rents_from="aws",
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            PolicyDenies(objections=(HOURS,)),
            PolicyDenies(objections=(replace(HOURS, message="it is 12:02, too late"),)),
            True,
        ),
        (PolicyDenies(objections=(HOURS,)), PolicyDenies(objections=(replace(HOURS, source="team.yaml:4"),)), False),
        (PolicyDenies(objections=(HOURS,)), PolicyDenies(objections=(replace(HOURS, name="day"),)), False),
        (PolicyDenies(objections=(HOURS,)), MoneyRefused(objections=(HOURS,), more=True), False),
        (MoneyRefused(objections=(HOURS,), more=False), MoneyRefused(objections=(HOURS,), more=True), False),
        (PAID, PAID.model_copy(update={"until": PAID.until + timedelta(hours=1), "saves": Money.usd("2")}), True),
        (PAID, PAID.model_copy(update={"pool": "ours/other"}), False),
        (StrategyWaits(pool="a", because="1 h"), StrategyWaits(pool="a", because="2 h"), True),
        (StrategyWaits(pool="a", because="1 h"), StrategyWaits(pool="b", because="1 h"), False),
        (NothingFits(counts={"no_quota": 2}), NothingFits(counts={"no_quota": 3}), False),
        (SecretsMissing(names=("A",)), SecretsMissing(names=("A", "B")), False),
    ],
)
def test_what_is_another_reason(one: WaitReason, other: WaitReason, *, same: bool) -> None:
    assert same_reason(one, other) is same
    assert same_reason(other, one) is same
