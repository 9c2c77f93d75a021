"""Refusals of every rule, and the smallest change by which each would pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from broker.core.job.jobs import CheckpointPlan, Data
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    BudgetUse,
    CapacityInHand,
    Facts,
    Source,
    UnusualSpending,
    Usage,
)
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.core.values.units import parse_duration, parse_money
from broker.ledger.budgets import periods_touching
from policies.rules import RULES
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, action, job, placement

HOUR, MINUTE, MICRO = timedelta(hours=1), timedelta(minutes=1), Money(1)
Asked = tuple[Action, Facts]


@dataclass(frozen=True)
class Refusal:
    """``rule`` and ``config``: as in a policy file; ``denied``: what it refuses. ``passes`` and ``less``: from the
    figures and the words of the refusal, what it says would pass, and a step less (None: there is none)."""

    rule: str
    config: Any
    denied: Asked
    passes: Callable[[Any, str], Asked]
    less: Callable[[Any, str], Asked] | None = None

    def check(self) -> None:
        kind = RULES[self.rule]
        made = kind("rule", kind.Config.model_validate(self.config), Scope(), Source("team.yaml", 3))
        said = made.judge(*self.denied)
        assert said.answer is not Answer.ALLOW, said
        assert made.judge(*self.passes(said.figures, said.message)).answer is not Answer.DENY, said
        if self.less is not None:
            assert made.judge(*self.less(said.figures, said.message)).answer is said.answer, said


def facts(**changes: Any) -> Facts:
    return Facts(NOW, **changes)


def lasting(time: timedelta, **changes: Any) -> Action:
    return action(window=(NOW, NOW + time), **changes)


def money(text: str) -> Money:
    return parse_money(text if text.startswith("$") else f"${text}")


MONTH = periods_touching("month", "UTC", (NOW, NOW))[0]


def asking(amount: Money, **changes: Any) -> Action:
    return action(
        hold={MoneyKind.CASH: amount}, burns={MoneyKind.CASH: Burn.evenly(amount, (NOW, NOW + HOUR))}, **changes
    )


def spent(amount: Money, held: Money = Money.ZERO) -> Facts:
    return facts(budgets={"rule": (BudgetUse(*MONTH, amount, held),)})


def with_offer(**changes: Any) -> Action:
    return action(placement=placement(**changes))


def asking_for(time: timedelta) -> Action:
    return lasting(time, hold={MoneyKind.CASH: Money.usd(1)})


def everything_else() -> Iterator[Refusal]:
    """Refusals whose change is a name, a time or a word of the job: ``passes`` is what the words say."""
    h100 = action(), facts()
    other = with_offer(accelerator="A100"), facts()
    yield Refusal("accelerators", ["A*"], h100, lambda _, words: other if "allowed: A*" in words else h100)
    eu = with_offer(region="eu-west-1"), facts()
    yield Refusal("allowed_locations", {"regions": "eu-*"}, h100, lambda _, words: eu if "eu-*" in words else h100)
    yield Refusal(
        "capacity_types",
        ["reserved"],
        h100,
        lambda _, words: (with_offer(capacity_type=CapacityType(words.rpartition(": ")[2])), facts()),
    )
    spot = placement(capacity_type=CapacityType.SPOT)
    saving = job(checkpoint=CheckpointPlan(every=10 * MINUTE))
    yield Refusal(
        "spot",
        {"use": "with_checkpoints"},
        (action(placement=spot), facts()),
        lambda _, words: (
            action(placement=spot, job=saving if "checkpoint: {every: 10m}" in words else job()),
            facts(),
        ),
    )
    sensitive = job(data=Data(sensitive=True))
    yield Refusal(
        "sensitive_data",
        "on_premises",
        (action(job=sensitive), facts()),
        lambda _, words: (
            action(
                job=sensitive,
                placement=placement(
                    capacity_type=CapacityType.OWNED if "owned machines" in words else CapacityType.SPOT
                ),
            ),
            facts(),
        ),
    )
    there = job(data=Data(location="aws/eu-west-1"))
    yield Refusal(
        "data_residency",
        {"data": "*", "run_in": ["aws/eu-*"]},
        (action(job=there), facts()),
        lambda _, words: (
            (action(job=there, placement=placement(region="eu-west-1")), facts())
            if "aws/eu-*" in words
            else (action(job=there), facts())
        ),
    )
    weak = with_offer(interconnect=Interconnect.PCIE), facts()
    yield Refusal(
        "min_interconnect",
        {"from_gpus": 8, "at_least": "nvlink"},
        weak,
        lambda figures, _: (with_offer(interconnect=Interconnect(figures["at_least"])), facts()),
        lambda *_: weak,
    )
    old = with_offer(as_of=NOW - 2 * HOUR), facts()
    yield Refusal(
        "max_price_age",
        "1h",
        old,
        lambda figures, _: (with_offer(as_of=NOW - parse_duration(figures["limit"])), facts()),
        lambda figures, _: (with_offer(as_of=NOW - parse_duration(figures["limit"]) - timedelta(seconds=1)), facts()),
    )
    yield Refusal(
        "reference_prices",
        "forbidden",
        (with_offer(reference=True), facts()),
        lambda _, words: h100 if "not a live one" in words else old,
    )
    frozen = {"from": "2026-11-20", "to": "2026-11-22T06:00"}
    yield Refusal(
        "freeze",
        frozen,
        h100,
        lambda figures, _: (action(), Facts(datetime.fromisoformat(f"{figures['until']}+00:00"))),
        lambda figures, _: (action(), Facts(datetime.fromisoformat(f"{figures['until']}+00:00") - MINUTE)),
    )
    long = lasting(50 * HOUR), facts()
    yield Refusal(
        "runaway",
        {"max_age": "48h"},
        long,
        lambda figures, _: (lasting(parse_duration(figures["limit"])), facts()),
        lambda figures, _: (lasting(parse_duration(figures["limit"]) + MINUTE), facts()),
    )
    again = action(ActionKind.RE_PLACE, attempts=3, submitted_at=NOW), facts()
    yield Refusal(
        "runaway",
        {"max_attempts": 3},
        again,
        lambda figures, _: (replace(again[0], attempts=int(figures["limit"]) - 1), facts()),
        lambda figures, _: again,
    )
    idle = facts(in_hand={"H100": CapacityInHand(8, 0.4, Money.usd(1))})
    yield Refusal(
        "renting",
        {"utilisation": "70%"},
        (action(), idle),
        lambda figures, _: (
            action(),
            facts(in_hand={"H100": CapacityInHand(8, float(figures["utilisation_percent"]) / 100, Money.usd(1))}),
        ),
        lambda figures, _: (
            action(),
            facts(
                in_hand={"H100": CapacityInHand(8, float(figures["utilisation_percent"]) / 100 - 1e-6, Money.usd(1))}
            ),
        ),
    )
    yield Refusal(
        "renting",
        {"horizon": "14d"},
        (asking_for(400 * HOUR), facts()),
        lambda figures, _: (asking_for(parse_duration(figures["horizon"])), facts()),
        lambda figures, _: (asking_for(parse_duration(figures["horizon"]) + timedelta(seconds=1)), facts()),
    )
    yield Refusal(
        "approve_above",
        {"gpus": 4, "approvers": ["bob"], "expires": "1h"},
        (asking(Money.usd(1)), facts()),
        lambda figures, _: (asking(Money.usd(1), placement=placement(count=int(figures["threshold"]))), facts()),
        lambda figures, _: (asking(Money.usd(1), placement=placement(count=int(figures["threshold"]) + 1)), facts()),
    )
    yield Refusal(
        "budget",
        {"amount": "$500", "period": "fixed", "from": "2026-12-01", "to": "2026-12-31"},
        (asking(Money.usd(1)), december()),
        lambda figures, _: (later(datetime.fromisoformat(figures["period_start"])), december()),
        lambda figures, _: (later(datetime.fromisoformat(figures["period_start"]) - MINUTE), december()),
    )
    terms: dict[str, Any] = {"max_commitment": "$1,000,000", "approvers": ["bob"], "expires": "1h", "max_term": "30d"}
    for_long = replace(placement(), duration=31 * 24 * HOUR)
    buying = asking(Money.usd(1), kind=ActionKind.RESERVE, placement=for_long)
    yield Refusal(
        "purchases",
        terms,
        (buying, facts()),
        lambda figures, _: (
            replace(buying, placement=replace(for_long, duration=parse_duration(figures["limit"]))),
            facts(),
        ),
        lambda figures, _: (
            replace(
                buying, placement=replace(for_long, duration=parse_duration(figures["limit"]) + timedelta(seconds=1))
            ),
            facts(),
        ),
    )
    for key, value, changed in (
        ("buyers", ["olga"], replace(buying, user="olga")),
        ("providers", ["gcp"], replace(buying, placement=placement(provider="gcp"))),
        ("products", ["block"], replace(buying, placement=placement(source="block"))),
    ):
        terms = {"max_commitment": "$9", "approvers": ["bob"], "expires": "1h", key: value}
        yield Refusal("purchases", terms, (buying, facts()), _named(value[0], changed, buying))
    busy = Usage(NOW - 40 * MINUTE, 2.0), Usage(NOW - 10 * MINUTE, 3.0)
    yield Refusal(
        "idle_shutdown",
        {"below": "5%", "for": "30m"},
        (action(ActionKind.CONTINUE, usage=busy), facts()),
        lambda figures, _: (
            action(ActionKind.CONTINUE, usage=(busy[0], Usage(NOW - 10 * MINUTE, float(figures["below"])))),
            facts(),
        ),
        lambda figures, _: (
            action(ActionKind.CONTINUE, usage=(busy[0], Usage(NOW - 10 * MINUTE, float(figures["below"]) - 0.01))),
            facts(),
        ),
    )
    running = action(ActionKind.CONTINUE)
    yield Refusal(
        "unusual_spending",
        {"above": "$50", "answer_within": "1h"},
        (running, facts(unusual=UnusualSpending(Money.usd(80), NOW - 2 * HOUR, ""))),
        lambda figures, _: (running, facts(unusual=UnusualSpending(money(figures["limit"]), NOW - 2 * HOUR, ""))),
        lambda figures, _: (
            running,
            facts(unusual=UnusualSpending(money(figures["limit"]) + MICRO, NOW - 2 * HOUR, "")),
        ),
    )


def _named(name: str, changed: Action, otherwise: Action) -> Callable[[dict[str, str], str], Asked]:
    return lambda _, words: (changed if name in words else otherwise, facts())


def december() -> Facts:
    days = periods_touching("2026-12-01/2027-01-01", "UTC", (NOW, NOW + 60 * 24 * HOUR))
    return facts(budgets={"rule": tuple(BudgetUse(*day, Money.ZERO, Money.ZERO) for day in days[:1])})


def later(start: datetime) -> Action:
    return action(
        hold={MoneyKind.CASH: Money.usd(1)},
        burns={MoneyKind.CASH: Burn.evenly(Money.usd(1), (start, start + HOUR))},
    )
