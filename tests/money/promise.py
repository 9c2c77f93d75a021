"""The promise, part by part, checked against a finished world: `broken` returns the broken parts."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from fractions import Fraction

from broker.app.jobs.reasons import wait_text
from broker.core.events.events import JobEnded
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, balances, faults
from tests.money.cloud import CloudMachine
from tests.money.moves import ExpectedBudget
from tests.money.oracle import Oracle, Piece
from tests.money.periods import period_of
from tests.money.world import MoneyWorld, Violation

ROUNDING = 20  # micro-dollars per job: each settlement rounds once


def broken(world: MoneyWorld) -> list[Violation]:
    """After `MoneyWorld.drain`: every broken part of the promise, worst first."""
    found = list(world.found)
    if found:
        return found
    with world.store.reading() as look:
        views, entries = look.jobs(with_tasks=True), look.entries()
    oracle = Oracle(world)
    for part in (_over(world, views), _ledger(entries), _held(views, entries), _limits(world, oracle, views)):
        found += part
    found += _tasks(world, views)
    found += _within_budgets(world, oracle, views, entries)
    found += _agrees(world, oracle, views, entries)
    found += _rebuilt(world)
    return [one for one in found if one.rule not in world.ignoring]


def _over(world: MoneyWorld, views: Sequence[JobView]) -> Iterator[Violation]:
    for machine in world.cloud.machines.values():
        if machine.gone_at is None:
            yield Violation("gone", f"{machine.key} still runs after everything was cancelled")
    for view in views:
        if not view.closed:
            yield Violation("closed", f"{view.id} is not closed: {view.state.value} {wait_text(view.waiting)}")


def _ledger(entries: Sequence[Entry]) -> Iterator[Violation]:
    for fault in faults(entries):
        yield Violation("balanced", fault)
    for entry in entries:
        if entry.covers_to < entry.covers_from:
            yield Violation("balanced", f"{entry.movement_id} covers less than no time")


def _held(views: Sequence[JobView], entries: Sequence[Entry]) -> Iterator[Violation]:
    """Closed jobs hold nothing; every hold was spent or released, once."""
    by_job: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_job[entry.tags.job_id].append(entry)
    for view in views:
        mine = by_job[view.id]
        for kind, balance in balances(mine).items():
            if view.closed and balance.held:
                yield Violation("released", f"{view.id} is closed and holds {balance.held} ({kind})")
        moved: dict[Movement, int] = defaultdict(int)
        for entry in mine:
            if entry.account is Account.HELD:
                moved[entry.movement] += entry.amount.micros
        left: int = sum(moved.values())
        if view.closed and left:
            yield Violation("released", f"{view.id}: {dict(moved)} do not come to nothing")


def _limits(world: MoneyWorld, oracle: Oracle, views: Sequence[JobView]) -> Iterator[Violation]:
    """No job spends more than its own limit, and no array's tasks more than that of the array."""
    for view in views:
        if view.max_cost is None:
            continue
        names = [view.job.name, *(task.job.name for task in _tasks_of(view, views))]
        machines = [machine for name in names for machine in oracle.machines(name)]
        bill = [piece for machine in machines for piece in oracle.bill(machine)]
        slack = [piece for machine in machines for piece in oracle.slack(machine)]
        spent, more = _sum(bill), _sum(slack)
        if spent > view.max_cost.micros + more + ROUNDING:
            yield Violation(
                "max_cost", f"{view.id} spent {_usd(spent)} of {view.max_cost}, {_usd(more)} of it could not be helped"
            )


def _tasks_of(array: JobView, views: Sequence[JobView]) -> list[JobView]:
    return [view for view in views if view.job.task is not None and view.job.task.array == array.id]


def _tasks(world: MoneyWorld, views: Sequence[JobView]) -> Iterator[Violation]:
    """Each task of an array is done at most once, no more run at once than the array allows, and none after its end."""
    for array in views:
        if array.job.array is None:
            continue
        tasks = _tasks_of(array, views)
        numbers = sorted(task.job.task.index for task in tasks if task.job.task is not None)
        if numbers != list(range(len(tasks))) or len(tasks) > array.job.array.count:
            yield Violation("tasks", f"{array.id} of {array.job.array.count} has the tasks {numbers}")
        for task in tasks:
            done = [one.number for one in task.attempts if one.state is AttemptState.SUCCEEDED]
            if len(done) != (task.state is JobState.SUCCEEDED):
                yield Violation("tasks", f"{task.id} {task.state.value} after the attempts {done} did well")
        with world.store.reading() as look:
            spans = [(stream[0].at, stream[-1].at) for stream in map(look.events, (task.id for task in tasks))]
            ended = next((one.at for one in look.events(array.id) if isinstance(one.body, JobEnded)), None)
        if not world.clock_was_wrong:
            for begin, _ in spans:
                at_once = sum(since <= begin < until for since, until in spans)
                if at_once > array.job.array.parallel:
                    yield Violation("tasks", f"{array.id} had {at_once} tasks at once at {begin}")
            if ended is not None and any(ended < until for _, until in spans):
                yield Violation("tasks", f"{array.id} ended before its last task was closed")
        given_up = array.cancel_requested or (array.awaits_predecessors and not tasks)
        if array.closed and not given_up and len(tasks) < array.job.array.count:
            yield Violation("tasks", f"{array.id} ended without its last tasks: {numbers}")


def _within_budgets(
    world: MoneyWorld, oracle: Oracle, views: Sequence[JobView], entries: Sequence[Entry]
) -> Iterator[Violation]:
    teams = {view.job.name: view.job.team or "" for view in views}
    names = {view.id: view.job.name for view in views}
    bills = [(machine.launch.job.name, oracle.bill(machine), oracle.slack(machine)) for machine in oracle.machines()]
    booked = [
        (names[entry.tags.job_id], Piece(entry.covers_from, entry.covers_to, Fraction(entry.amount.micros)))
        for entry in entries
        if entry.account is Account.SPENT and entry.money is MoneyKind.CASH and entry.tags.job_id in names
    ]
    # For lost machines the ledger has more: they count until the loss was noticed.
    lost = {machine.launch.job.name for machine in oracle.machines() if machine.lost_at is not None}
    for budget in {budget for _, terms in world.in_force if terms for budget in terms.amounts}:
        mine = {name for name, team in teams.items() if budget.team in ("", team)}
        pieces = [(name, piece) for name, bill, _ in bills if name in mine for piece in bill]
        slack = [piece for name, _, more in bills if name in mine for piece in more]
        ledger = [piece for name, piece in booked if name in mine]
        for begins, ends in _touched(budget, [piece for _, piece in pieces]):
            jobs = {name for name, piece in pieces if piece.within(begins, ends)}
            limit = _limit(world, budget, jobs, names)
            if limit is None:
                continue
            more = sum((piece.within(begins, ends) for piece in slack), Fraction(0))
            more += _admitted_by_a_wrong_clock(world, jobs, names)
            says = [("the cloud says", [piece for _, piece in pieces])]
            says += [] if lost & mine else [("the ledger says", ledger)]
            for who, some in says:
                spent = sum((piece.within(begins, ends) for piece in some), Fraction(0))
                if spent > limit + more + ROUNDING * len(views):
                    yield Violation(
                        "budget",
                        f"{budget.name} of {_usd(limit)} a {budget.period} ({budget.zone}): {who} {_usd(spent)} in "
                        f"{begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; {_usd(more)} could not be helped",
                    )


def _touched(budget: ExpectedBudget, pieces: list[Piece]) -> list[tuple[datetime, datetime]]:
    found: set[tuple[datetime, datetime]] = set()
    for piece in pieces:
        moment = piece.since
        while True:
            period = period_of(budget, moment)
            if budget.days is None or period[0] <= moment:
                found.add(period)
            if period[1] >= piece.until or budget.days is not None:
                break
            moment = period[1]
    return sorted(found)


def _limit(world: MoneyWorld, budget: ExpectedBudget, jobs: set[str], names: dict[str, str]) -> int | None:
    """The highest amount of the budget in force while money of these jobs was admitted; None if some was admitted while
    there was no such budget.
    """
    highest = 0
    for number, _, entry in world.admitted:
        if entry.money is not MoneyKind.CASH or names.get(entry.tags.job_id) not in jobs:
            continue
        terms = world.in_force[number][1]
        if terms is None or budget not in terms.amounts:
            return None
        highest = max(highest, Money.usd(terms.amounts[budget].lstrip("$")).micros)
    return highest


def _admitted_by_a_wrong_clock(world: MoneyWorld, jobs: set[str], names: dict[str, str]) -> int:
    """The money admitted while the clock was wrong: its period cannot be determined."""
    return sum(
        entry.amount.micros for _, wrong, entry in world.admitted if wrong and names.get(entry.tags.job_id) in jobs
    )


def _agrees(
    world: MoneyWorld, oracle: Oracle, views: Sequence[JobView], entries: Sequence[Entry]
) -> Iterator[Violation]:
    """The ledger equals the cloud's bill.

    For lost machines the ledger may have more: they count until the loss was noticed. Price changes that the broker
    learned of only after a machine was gone are corrected by the provider's bill.
    """
    for view in views:
        machines = oracle.machines(view.job.name)
        if any(machine.lost_at is not None for machine in machines) or any(
            _told_late(world, machine) for machine in machines
        ):
            continue
        bill = _sum([piece for machine in machines for piece in oracle.bill(machine)])
        mine = [e for e in entries if e.tags.job_id == view.id and e.account is Account.SPENT]
        booked = sum(e.amount.micros for e in mine if e.money is MoneyKind.CASH)
        if abs(booked - bill) > ROUNDING:
            yield Violation("agrees", f"{view.id}: the ledger has {_usd(booked)}, the cloud bills {_usd(bill)}")


def _told_late(world: MoneyWorld, machine: CloudMachine) -> bool:
    """Whether its price was unknown when it was requested, or the broker was told of a change after it was gone."""
    line = world.market.line_of(machine.launch.placement.offer)
    gone = machine.gone_at or world.clock.true
    if machine.launch.placement.offer.price != line.at(machine.submitted):
        return True
    return any(at < gone and told > at for (at, _), told in zip(line.true, line.told, strict=True))


def _rebuilt(world: MoneyWorld) -> Iterator[Violation]:
    """Projections equal those rebuilt from events and entries."""
    from sqlalchemy import select

    from broker.store.schema.jobs import JobRow
    from broker.store.schema.ledger import LedgerBalanceRow

    def rows() -> list[object]:
        with world.store._database.reading() as connection:
            return [
                sorted(map(tuple, connection.execute(select(table))), key=repr) for table in (LedgerBalanceRow, JobRow)
            ]

    before = rows()
    world.store.rebuild()
    if rows() != before:
        yield Violation("rebuilt", "the projections made anew differ from those that were kept")


def _sum(pieces: list[Piece]) -> Fraction:
    return sum((piece.amount for piece in pieces), Fraction(0))


def _usd(micros: Fraction | int) -> str:
    return f"${float(micros) / 1e6:,.6f}"
