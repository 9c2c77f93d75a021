"""The cost of jobs so far, and their holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.views import JobView
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import BudgetShare, budget_shares
from broker.ledger.entries import Account, Balance, Sum
from broker.ledger.holds import ledger_rate
from broker.ledger.journal import TaskCounts
from broker.ledger.meter import Meter
from broker.reconciler.progress import machine_time, on_demand_cost


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of a job, or of the tasks of an array, in USD.

    ``spent`` and ``held``: from the ledger, by kind of money. ``so_far``: what was settled, and an estimate of what the
    running machine has used since; final when the job is closed. ``on_demand``: the cost of the work on the cheapest
    on-demand placement at submission; ``savings``: its difference to what was paid for the job, without amortized
    money, which was paid before. Both are None until the job has ended, if there was no such placement, or if the job
    ran on demand itself. ``burns``:
    the held money, and from now until when it is expected to be used; ``budgets``: the budgets that the job counts
    against. ``tasks``: the state of the started tasks of an array, of a retried one also of those that it does not run
    again. ``quantile``: the share of runs (percent) that the hold covers by the policy in force, where it follows from
    the job's work alone; else None.
    """

    spent: Mapping[MoneyKind, Money]
    held: Mapping[MoneyKind, Money]
    so_far: Money
    on_demand: Money | None
    savings: Money | None
    burns: Mapping[MoneyKind, Burn]
    budgets: Sequence[BudgetSpec]
    tasks: TaskCounts | None = None
    quantile: float | None = None

    @property
    def shares(self) -> list[BudgetShare]:
        """How the held money is divided among budget periods."""
        return budget_shares(self.budgets, self.burns)


def bill_of(broker: Broker, view: JobView) -> Bill:
    """The cost of the job so far."""
    return bills_of(broker, [view])[0]


def bills_of(broker: Broker, views: Sequence[JobView]) -> list[Bill]:
    """The cost of each job so far, in the same order, with one set of queries for all jobs."""
    return _bills(broker, views, _policy_or_none)


def costs_of(broker: Broker, views: Sequence[JobView]) -> list[Bill]:
    """As `bills_of`, without reading the policies: ``budgets`` are empty, ``quantile`` is None. Loading the policies
    takes longer than the rest."""
    return _bills(broker, views, lambda _: None)


def _bills(broker: Broker, views: Sequence[JobView], policy_of: Callable[[Broker], PolicySet | None]) -> list[Bill]:
    ids = [view.id for view in views]
    with broker.store.reading() as reader:
        balances, sums, meters = reader.balances(ids), reader.sums(ids), reader.meters(ids)
        arrays = {view.id: view.job.array.again for view in views if view.job.array is not None}
        task_balances, counts = reader.money_of_tasks(list(arrays)), reader.counts_of(arrays)
    balances = {**balances, **task_balances}  # an array has no money of its own
    now = broker.clock.now()
    policy = (
        policy_of(broker)
        if any(balance.burn for job_balances in balances.values() for balance in job_balances.values())
        else None
    )
    return [
        replace(
            _bill(view, balances.get(view.id, {}), sums.get(view.id, ()), meters.get(view.id, {}), policy, now),
            tasks=counts.get(view.id),
        )
        for view in views
    ]


def _bill(
    view: JobView,
    balance: Mapping[MoneyKind, Balance],
    sums: Sequence[Sum],
    meters: Mapping[int, Meter],
    policy: PolicySet | None,
    now: datetime,
) -> Bill:
    settled = sum((b.spent for b in balance.values()), Money.ZERO)
    running = Money.ZERO
    for attempt in (attempt for attempt in view.attempts if not attempt.over):
        meter = meters.get(attempt.number)
        attempt_amounts = [e.amount for e in sums if e.account is Account.SPENT and e.tags.attempt == attempt.number]
        settled_time_cost = (
            sum(attempt_amounts, Money.ZERO) if meter is None else meter.settled
        )  # without the cost of data transfer
        machine_cost = (ledger_rate(attempt.placement.offer) * attempt.placement.nodes).for_duration(
            machine_time(attempt, now)
        )
        running += max(machine_cost - settled_time_cost, Money.ZERO)
    compares = any(a.placement.offer.capacity_type is not CapacityType.ON_DEMAND for a in view.attempts)
    on_demand = on_demand_cost(view) if view.state.final and compares else None
    burns = {
        kind: kind_balance.burn.seen(now) for kind, kind_balance in balance.items() if kind_balance.burn is not None
    }
    paid = sum((b.spent for kind, b in balance.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
    return Bill(
        spent={kind: b.spent for kind, b in balance.items()},
        held={kind: b.held for kind, b in balance.items() if b.held},
        so_far=settled + running,
        on_demand=on_demand,
        savings=None if on_demand is None else on_demand - paid,
        burns=burns,
        budgets=policy.budgets(view.job, view.user) if burns and policy is not None else (),
        quantile=_covered_quantile(view, policy),
    )


def _covered_quantile(view: JobView, policy: PolicySet | None) -> float | None:
    """The share of runs that the hold covers; None if the hold may not follow from the job's work, for example because
    ``max_cost`` limited it."""
    if policy is None or view.max_cost is not None:
        return None
    from broker.reconciler.admission.admission import hold_quantile  # imports all of placement, which few bills need

    covers = hold_quantile(view.job, policy)
    return None if covers >= 100 else covers


def _policy_or_none(broker: Broker) -> PolicySet | None:
    try:
        return broker.policy()
    except BrokerError:
        return None  # policies that this version cannot read must not hide a job's bill
