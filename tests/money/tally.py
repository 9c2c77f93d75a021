"""Counts the events in the worlds of many scripts, to show that they put the promise to the test."""

from collections import Counter

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer
from broker.ledger.entries import Movement
from tests.money.periods import period_of
from tests.money.world import MoneyWorld

MUST_HAPPEN = (
    "launches",
    "holds",
    "top-ups",
    "extensions",
    "period ends",
    "moves refused",
    "denials",
    "approvals",
    "preemptions",
    "faults of the cloud",
)


def tally(world: MoneyWorld) -> Counter[str]:
    """The counts of a finished world.

    ``period ends``: how often a budget's period ended while one of its machines that cost cash existed.
    """
    machines = list(world.cloud.machines.values())
    movements = Counter(entry.movement for _, _, entry in world.admitted)
    found = Counter(world.did)
    found["launches"] = len(machines)
    found["holds"] = movements[Movement.HOLD]
    found["top-ups"] = movements[Movement.TOP_UP]
    found["denials"] = sum(one.answer is Answer.DENY for one in world.judged)
    found["preemptions"] = sum(machine.interrupted for machine in machines)
    found["machines lost"] = sum(machine.lost_at is not None for machine in machines)
    found["faults of the cloud"] = world.cloud.failed
    found["faults of the run folders"] = world.folders.failed
    found["looks"] = len(world.looks)
    budgets = {budget for _, terms in world.in_force if terms for budget in terms.amounts}
    for machine in machines:
        if machine.launch.placement.money is not MoneyKind.CASH:
            continue
        last = machine.gone_at or world.clock.true
        for budget in budgets:
            if budget.team in ("", machine.launch.job.team):
                moment = machine.since
                while (moment := period_of(budget, moment)[1]) < last and budget.days is None:
                    found["period ends"] += 1
    return found
