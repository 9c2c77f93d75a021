"""The ledger of a simulation, in memory: the production entries, and the sums that budgets ask for.

A job's entries are kept until it is closed; then `broker.ledger.entries.faults` checks them and they are folded into
sums. So memory holds only what is open.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, BudgetUse, Facts, LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money, in_microseconds
from broker.ledger.budgets import (
    Window,
    budget_uses,
    period_containing,
    periods_touching,
    share_within,
    summable_until,
)
from broker.ledger.entries import Account, Balance, Dates, Entry, Movement, Tags, balances, dates_after, faults, move
from broker.reconciler.admission.facts import add_holds_behind, waits_with_money

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class _BudgetState:
    """What a budget has spent in each period, the most that was held in it when a job was judged, and the holds under
    it: those that end within the current period as one sum, the others by amount, rate and the period in which they
    end. Within such a group a hold's share of a period is linear in its end, so the group counts as one hold with the
    mean end, exact but for rounding."""

    __slots__ = ("_grouped", "_holds", "_short", "_until", "last", "most_held", "spec", "spent")

    def __init__(self, spec: BudgetSpec) -> None:
        self.spec = spec
        self.spent: dict[datetime, int] = defaultdict(int)
        self.most_held: dict[datetime, int] = defaultdict(int)
        self.last = _EPOCH
        self._holds: dict[tuple[str, MoneyKind], Burn] = {}
        self._short = 0
        self._until = _EPOCH
        self._grouped: dict[tuple[int, int, datetime], list[int]] = {}

    def set_hold(self, key: tuple[str, MoneyKind], burn: Burn | None) -> None:
        before = self._holds.pop(key, None)
        if before is not None:
            self._count(before, -1)
        if burn is not None:
            self._holds[key] = burn
            self._count(burn, 1)

    def _count(self, burn: Burn, sign: int) -> None:
        if burn.end <= self._until:
            self._short += sign * burn.amount.micros
            return
        ends_in = period_containing(self.spec.period, self.spec.timezone, burn.end)[0]
        key = burn.amount.micros, burn.rate.micros, ends_in
        group = self._grouped.setdefault(key, [0, 0])
        group[0] += sign
        group[1] += sign * in_microseconds(burn.end - _EPOCH)
        if not group[0]:
            del self._grouped[key]

    def held(self, until: datetime) -> list[Burn]:
        if until != self._until:
            self._until, self._short, self._grouped = until, 0, {}
            for burn in self._holds.values():
                self._count(burn, 1)
        found = [Burn(Money(self._short), until, until, Money.ZERO)] if self._short else []
        for (amount, rate, _), (number, ends) in self._grouped.items():
            end = _EPOCH + (ends // number) * _MICROSECOND
            found.append(Burn(Money(amount * number), _EPOCH, end, Money(rate * number)))
        return found

    def add(self, amount: Money, covers: Window) -> None:
        """Count spend."""
        spec = self.spec
        for period in periods_touching(spec.period, spec.timezone, covers):
            if part := share_within(amount, covers, period).micros:
                self.spent[period[0]] += part
        self.last = max(self.last, covers[1])

    def behind(self, job_id: str, submitted_at: datetime, waiting: Mapping[str, datetime]) -> list[Burn]:
        """The holds of those that wait and were submitted after ``submitted_at`` (at that moment: by id). ``waiting``:
        when each was."""
        line = (submitted_at, job_id)
        return [burn for (job, _), burn in self._holds.items() if job in waiting and (waiting[job], job) > line]

    @property
    def open_amount(self) -> int:
        return sum(burn.amount.micros for burn in self._holds.values())


@dataclass(slots=True)
class OpenAccount:
    """One job's money while it is open: its entries, and the dates of its holds."""

    tags: Tags
    budgets: Sequence[_BudgetState]
    entries: list[Entry] = field(default_factory=list)
    held: dict[MoneyKind, Money] = field(default_factory=dict)
    dates: dict[MoneyKind, Dates | None] = field(default_factory=dict)
    movements: int = 0

    def balance(self) -> dict[MoneyKind, Balance]:
        return {
            kind: Balance(one.available, one.held, one.spent, self.dates.get(kind))
            for kind, one in balances(self.entries).items()
        }


def _noted(entries: Sequence[Entry]) -> Iterator[str]:
    """The lines for the hash. Entries that are posted together share their time, and its text takes longest."""
    at, told = None, ""
    for one in entries:
        if one.at is not at:
            at, told = one.at, str(one.at)
        yield f"{one.movement_id} {one.account.value} {one.amount.micros} {told}"


class VirtualLedger:
    """``live``: the running attempts, for rules that count them."""

    def __init__(self) -> None:
        self._budgets: dict[str, _BudgetState] = {}
        self._totals: dict[tuple[MoneyKind, Account], int] = defaultdict(int)
        self._faults: list[str] = []
        self._open = 0
        self._unstarted: dict[str, datetime] = {}
        self._digest = hashlib.sha256()
        self.movements = 0
        self.live: tuple[LiveAttempt, ...] = ()

    # Posting.

    def open(self, tags: Tags, budgets: Iterable[BudgetSpec], at: datetime) -> OpenAccount:
        """The account of a job submitted at that time (UTC), whose money counts under these budgets."""
        self._open += 1
        self._unstarted[tags.job_id] = at
        states = [self._budgets.setdefault(spec.id, _BudgetState(spec)) for spec in budgets]
        return OpenAccount(tags, states)

    def started(self, job_id: str) -> None:
        """The job has machines for the first time."""
        self._unstarted.pop(job_id, None)

    def post(self, account: OpenAccount, entries: Sequence[Entry]) -> None:
        held, dates = account.held, account.dates
        touched = set()
        if entries:
            self.note("\n".join(_noted(entries)))
        for entry in entries:
            kind, micros = entry.money, entry.amount.micros
            self._totals[kind, entry.account] += micros
            if entry.account is Account.HELD:
                held[kind] = Money(held[kind].micros + micros) if kind in held else entry.amount
                dates[kind] = dates_after(dates.get(kind), held[kind], entry)
                touched.add(kind)
            elif entry.account is Account.SPENT:
                for state in account.budgets:
                    if kind in state.spec.counts:
                        state.add(entry.amount, (entry.covers_from, entry.covers_to))
        account.entries += entries
        account.movements += len(entries) // 2
        self.movements += len(entries) // 2
        job = account.tags.job_id
        for kind in touched:
            burn = Balance(held=held[kind], dates=dates[kind]).burn
            for state in account.budgets:
                if kind in state.spec.counts:
                    state.set_hold((job, kind), burn)

    def close(self, account: OpenAccount, now: datetime) -> Mapping[MoneyKind, Money]:
        """Release what the job still holds, check its entries, and forget them. Returns what it has spent, by kind."""
        job = account.tags.job_id
        for kind, held in list(account.held.items()):
            released = move(
                Movement.RELEASE,
                max(held, Money.ZERO),
                movement_id=f"{job}/release/{account.movements}/{kind}",
                money=kind,
                at=now,
                covers=(now, now),
                tags=account.tags,
            )
            self.post(account, released)
        self._faults += faults(account.entries)
        left = balances(account.entries)
        self._faults += [f"job {job} still holds {one.held} ({kind})" for kind, one in left.items() if one.held]
        self._open -= 1
        self._unstarted.pop(job, None)
        return {kind: one.spent for kind, one in left.items() if one.spent}

    def note(self, line: str) -> None:
        """Add a line to the input of the simulation's hash."""
        self._digest.update(f"{line}\n".encode())

    # Checks at the end of a simulation.

    @property
    def digest(self) -> str:
        """The hash of everything posted and noted."""
        return self._digest.hexdigest()

    def check(self) -> list[str]:
        """Errors of the ledger in sentences; empty if it balances, no job is open, and no hold is left."""
        found = list(self._faults)
        kinds = {kind for kind, _ in self._totals}
        for kind in sorted(kinds):
            sums = {account: self._totals[kind, account] for account in Account}
            if sum(sums.values()):
                found.append(f"the accounts of {kind} money do not sum to zero")
            if not self._open and sums[Account.HELD]:
                found.append(f"{Money(sums[Account.HELD])} ({kind}) is held for no job")
        found += [
            f"budget {state.spec.id} counts holds of no job"
            for state in self._budgets.values()
            if not self._open and state.open_amount
        ]
        if self._open:
            found.append(f"{self._open} jobs were not closed")
        return found

    def spent_by_period(self) -> Mapping[str, Mapping[datetime, Money]]:
        """By budget: the spend of each of its periods (UTC start)."""
        return {
            name: {start: Money(micros) for start, micros in sorted(state.spent.items())}
            for name, state in self._budgets.items()
        }

    def most_held_by_period(self) -> Mapping[str, Mapping[datetime, Money]]:
        """By budget: the most that other jobs held in each period when a job was judged (UTC start). Budgets that
        refused every job are among them."""
        return {
            name: {start: Money(micros) for start, micros in sorted(state.most_held.items())}
            for name, state in self._budgets.items()
        }

    # Facts for the rules.

    def facts(self, budgets: Sequence[BudgetSpec], now: datetime) -> Callable[[Action], Facts]:
        """The facts for rules about a job under these budgets, as `broker.reconciler.admission.facts` reads them from a
        store: without approvals, and without capacity in hand."""

        def facts_for(action: Action) -> Facts:
            if action.hold is None:
                return Facts(now, self.live)
            window = action.covers or (now, now)
            return Facts(now, self.live, {budget.id: self._uses(budget, window, now) for budget in budgets})

        return facts_for

    def facts_in_line(self, budgets: Sequence[BudgetSpec], now: datetime) -> Callable[[Action], Facts]:
        """As `facts`, for starts of waiting jobs that do not fit otherwise: with what those hold that wait behind."""
        facts_for = self.facts(budgets, now)

        def in_line(action: Action) -> Facts:
            facts = facts_for(action)
            if not waits_with_money(action):
                return facts
            return replace(
                facts,
                budgets=add_holds_behind(
                    facts.budgets, {name: self._behind(name, action, now) for name in facts.budgets}
                ),
            )

        return in_line

    def _behind(self, name: str, action: Action, now: datetime) -> list[Burn]:
        assert action.submitted_at is not None, "only starts of jobs on record are in line"
        behind = self._budgets[name].behind(action.job_id or "", action.submitted_at, self._unstarted)
        return [burn.seen(now) for burn in behind]

    def _uses(self, budget: BudgetSpec, window: Window, now: datetime) -> tuple[BudgetUse, ...]:
        spent, until = partial(self.spent, budget), partial(self.spent_until, budget)
        uses = budget_uses(budget, window, now, spent, self.held(budget, summable_until(budget, now)), until)
        most = self._budgets.setdefault(budget.id, _BudgetState(budget)).most_held
        for use in uses:
            most[use.period_start] = max(most[use.period_start], use.held.micros)
        return uses

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """The spend of one whole period of the budget."""
        state = self._budgets.get(budget.id)
        return Money(state.spent.get(start, 0)) if state else Money.ZERO

    def spent_until(self, budget: BudgetSpec) -> datetime:
        state = self._budgets.get(budget.id)
        return state.last if state else _EPOCH

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[Burn]:
        state = self._budgets.get(budget.id)
        return state.held(until) if state else ()
