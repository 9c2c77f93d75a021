"""How long policies take to judge. Run: python -m tests.bench"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import process_time

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, BudgetUse, Facts
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from tests.contracts.rule_contract import NOW, action, live, placement
from tests.policies.test_speed import policy_set

WHEN = "job.workload == 'training' && offer.price > 1.0 && hour_in('Europe/Berlin') < 25"


def all_judged(policies: PolicySet, actions: Sequence[Action], facts: Facts) -> None:
    """What a plan asks of the policies: each placement by itself."""
    for act in actions:
        policies.judge(act, facts)


def seconds(work: Callable[[], object]) -> float:
    """CPU time, best of five."""

    def once() -> float:
        start = process_time()
        work()
        return process_time() - start

    return min(once() for _ in range(5))


def main() -> None:
    running = tuple(live(8, job_id=f"j-{n}") for n in range(200))
    for when in ("", WHEN):
        policies = policy_set(20, 200, when)
        act = action(hold={MoneyKind.CASH: Money.usd(100)})
        (period,) = periods_touching("month", "UTC", (NOW, NOW))
        uses = {spec.id: (BudgetUse(*period, Money.ZERO, Money.ZERO),) for spec in policies.budgets(act.job, "ann")}
        facts = Facts(NOW, running, uses)
        taken = seconds(partial(policies.judge, act, facts))
        what = f"1 submission judged under 20 files, {len(policies.rules)} rules"
        print(f"{what + (', each with a condition' if when else ''):<76} {taken * 1000:8.3f} ms CPU   (at most 5)")
    facts = Facts(NOW, running, {})
    actions = [replace(action(), placement=placement(f"{20 + n / 1000:.3f}", region=f"us-{n % 9}")) for n in range(500)]
    for files, rules in ((2, 20), (20, 200)):
        policies = policy_set(files, rules)
        taken = seconds(partial(all_judged, policies, actions, facts))
        what = f"500 placements judged under {len(policies.rules)} rules, 200 jobs running"
        print(f"{what:<76} {taken:8.3f} s CPU")


if __name__ == "__main__":
    main()
