"""Budgets: state, forecast, and alerts on thresholds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from math import ceil
from typing import Protocol, cast

from broker.app.alerts import approvers, notify
from broker.app.alerts.routes import recipients
from broker.app.billing import anomalies
from broker.app.results.budgets import BudgetDetails, BudgetList, SpentUntil
from broker.app.results.money import JobShareResult
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, UnknownName
from broker.core.notices import Notice, Severity
from broker.core.policy.policy import BudgetUse, Source
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.money import Money, alike
from broker.finops.expectation import LONGEST, expect
from broker.ledger.budgets import budget_uses, matches, period_containing, period_name, told_as_one_until
from broker.ledger.forecast import EXCEEDED, FORECAST, Draw, Forecast, SpendingPace, forecast, passed, threshold
from broker.ledger.holds import ledger_rate
from broker.ledger.journal import OpenHold, Reading
from broker.ledger.shares import BudgetShare, budget_shares
from broker.store.jobs.reading import StoreReading
from broker.store.outbox import Dispatch

log = logging.getLogger(__name__)

_LOOK_EVERY = timedelta(seconds=15)  # of the wall clock
_ANOMALIES_EVERY = timedelta(minutes=10)
_OVER_EVERY = timedelta(seconds=5)
_DAY = timedelta(days=1)


class _BudgetTerms(Protocol):
    """The configuration of a rule of the kind ``budget``."""

    amount: Money
    alerts: tuple[str, ...]
    action: str


class BudgetRule(Protocol):
    """The attributes of a rule of the kind ``budget``, in addition to those of every rule."""

    spec: BudgetSpec
    config: _BudgetTerms
    source: Source


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget of the active set and its state in the current period ``at`` a time (UTC). Money in USD. ``marks``: the
    thresholds that it passed, and when each was first detected (UTC). ``holds``: the holds of jobs that count under it.
    """

    spec: BudgetSpec
    limit: Money
    source: Source
    action: str
    alerts: tuple[str, ...]
    use: BudgetUse
    forecast: Forecast
    marks: Mapping[str, datetime]
    holds: Sequence[OpenHold]
    at: datetime

    @property
    def left(self) -> Money:
        """The amount (USD) that can still be held or spent in the period; negative if later charges exceeded the
        limit."""
        return self.limit - self.use.spent - self.use.held

    @property
    def period_name(self) -> str:
        """``November 2026``"""
        return period_name(self.spec.period, self.spec.timezone, self.use.period_start)

    @property
    def held_by_job(self) -> list[tuple[str, BudgetShare]]:
        """The holds of each job in each period, by job: earliest period first, in each the largest first. Those of the
        current period add up to ``use.held``."""
        found = [
            (hold.job_id, share)
            for hold in self.holds
            for share in budget_shares([self.spec], {hold.money: hold.burn.seen(self.at)})
        ]
        return sorted(found, key=lambda one: (one[1].period, -one[1].held.micros, one[0]))


def rules_of(policy: PolicySet) -> list[BudgetRule]:
    """Every budget of a set, in file order."""
    return [cast("BudgetRule", rule) for rule in policy.rules if rule.kind == "budget"]


def budgets(broker: Broker) -> list[BudgetLine]:
    """Every budget of the active set in its current period, in file order."""
    rules, now = rules_of(broker.policy()), broker.clock.now()
    with broker.store.reading() as look:
        machines = _running(look)
        found = [line for rule in rules for line in _lines(look, rule, machines, now)]
    since = broker.store.budget_marks.since
    return [replace(line, marks=since(line.spec.id, line.use.period_start, line.limit)) for line in found]


def visible(lines: Sequence[BudgetLine], teams: Collection[str] | None) -> list[BudgetLine]:
    """The budgets that count only jobs of these teams (None: all budgets). A budget that counts all teams, or names
    them by a pattern, would reveal others' spend."""
    if teams is None:
        return list(lines)
    return [line for line in lines if line.spec.teams and set(line.spec.teams) <= set(teams)]


@dataclass(frozen=True, slots=True)
class _Running:
    """The current hourly cost of a job's machines (USD), and their expected end (UTC; None: unknown). ``to_start``: the
    expected cost of those that are starting (USD; None: unknown)."""

    rate: Money = Money.ZERO
    finish: datetime | None = None
    to_start: Money | None = None


def _running(look: Reading) -> Mapping[tuple[str, str], _Running]:
    """The jobs with machines, by job and kind of money."""
    found: dict[tuple[str, str], _Running] = {}
    running = {attempt.job_id for attempt in look.live_attempts()}
    for view in look.views(sorted(running)):
        for attempt in view.attempts:
            placement = attempt.placement
            key = (view.id, placement.money.value)
            if not attempt.over and attempt.up_since is None and placement.duration is not None:
                found.setdefault(key, _Running(to_start=placement.expected_cost))
            elif not attempt.over and attempt.up_since is not None:
                known = found.get(key, _Running(finish=placement.finish))
                rate = known.rate + ledger_rate(placement.offer) * placement.nodes
                found[key] = _Running(rate, placement.finish and known.finish and max(placement.finish, known.finish))
    return found


def _draw(hold: OpenHold, machines: Mapping[tuple[str, str], _Running], now: datetime) -> Draw:
    """The expected spend of a job. For a job that should have ended by now only its hold is expected."""
    running = machines.get((hold.job_id, hold.money))
    if running is None:
        return Draw(hold.burn)
    if not running.rate:
        return Draw(hold.burn, expected=running.to_start)
    if running.finish is None or running.finish <= now:
        return Draw(hold.burn, running.rate)
    return Draw(hold.burn, running.rate, running.rate.for_duration(running.finish - now))


def _pace(look: Reading, spec: BudgetSpec, use: BudgetUse, now: datetime) -> SpendingPace | None:
    """The forecast for the rest of the period from the days before today (UTC); None if they are too few."""
    today = datetime.combine(now.astimezone(UTC), time(), UTC)
    days = [float(day.dollars) for day in look.daily_spending(spec, today - LONGEST * _DAY, today)]
    ahead = (use.period_end - now) / _DAY
    began = next((number for number, day in enumerate(days) if day), len(days))
    found = expect(days[began:], ceil(ahead)) if ahead > 0 else None
    if found is None:
        return None
    part = ahead / ceil(ahead)
    return SpendingPace(*(Money(round(amount * part * 1_000_000)) for amount in (found.amount, found.low, found.high)))


def shares(look: StoreReading, spec: BudgetSpec) -> list[BudgetSpec]:
    """A budget; of one per user, team or project, the share of each that has money and is in its scope."""
    if not spec.per:
        return [spec]
    names = sorted(look.names_with_money(spec.per))
    return [spec.share(name) for name in names if matches(getattr(spec, f"{spec.per}s"), name)]


def _lines(
    look: StoreReading, rule: BudgetRule, machines: Mapping[tuple[str, str], _Running], now: datetime
) -> list[BudgetLine]:
    """The lines of a budget: of its shares, those with money in the period."""
    found = [_line(look, rule, spec, machines, now) for spec in shares(look, rule.spec)]
    used = [line for line in found if not rule.spec.per or line.use.spent or line.use.held]
    return used or [_line(look, rule, rule.spec, machines, now)]


def _line(
    look: Reading, rule: BudgetRule, spec: BudgetSpec, machines: Mapping[tuple[str, str], _Running], now: datetime
) -> BudgetLine:
    limit = rule.config.amount
    use = state(look, spec, now)
    holds = look.open_holds(spec)
    draws = [_draw(hold, machines, now) for hold in holds]
    ahead = forecast(use, limit, draws, now, _pace(look, spec, use, now))
    return BudgetLine(spec, limit, rule.source, rule.config.action, rule.config.alerts, use, ahead, {}, holds, now)


def state(look: Reading, budget: BudgetSpec, now: datetime) -> BudgetUse:
    """The spend and holds of a budget in its current period."""
    window = period_containing(budget.period, budget.timezone, now)
    held = look.held(budget, told_as_one_until(budget, now))
    return budget_uses(budget, window, now, partial(look.spent, budget), held)[0]


def budget_list(broker: Broker, teams: Collection[str] | None = None) -> BudgetList:
    """The `visible` budgets in their current periods."""
    return BudgetList.model_validate({"budgets": visible(budgets(broker), teams)})


def budget_details(
    broker: Broker, name: str | None = None, teams: Collection[str] | None = None, *, by_day: bool = False
) -> list[BudgetDetails]:
    """The `visible` budgets, or one of them, with details. ``by_day``: also the spend by day. Raises `UnknownName`."""
    lines = visible(budgets(broker), teams)
    chosen = [line for line in lines if name in (None, line.spec.id, line.spec.rule)]
    if name is not None and not chosen:
        raise UnknownName("budget", name, [line.spec.id for line in lines])
    return [_details(broker, line, by_day) for line in chosen]


def _details(broker: Broker, line: BudgetLine, by_day: bool) -> BudgetDetails:
    on_own = spent_on_own(broker, line)
    return BudgetDetails.of(
        line,
        notices_about(broker, line.spec.id),
        on_own=on_own,
        rented=line.use.spent - on_own,
        held_by_job=[JobShareResult.of(job, share) for job, share in line.held_by_job],
        days=days(broker, line) if by_day else None,
    )


def days(broker: Broker, line: BudgetLine) -> list[SpentUntil]:
    """The spend of the current period by day, up to now."""
    now, start, spec = broker.clock.now(), line.use.period_start, line.spec
    found = [SpentUntil(until=start, total=Money.ZERO)]
    with broker.store.reading() as look:
        while (since := found[-1]).until < min(now, line.use.period_end):
            _, midnight = period_containing("day", spec.timezone, since.until)
            until = min(midnight, now, line.use.period_end)
            found.append(SpentUntil(until=until, total=since.total + look.spent(spec, since.until, until)))
    return found


def spent_on_own(broker: Broker, line: BudgetLine) -> Money:
    """The part of the spend under the budget in its current period that was for owned and reserved capacity (USD)."""
    use = line.use
    with broker.store.reading() as look:  # to the end of the period, as for spend: machines may be paid ahead
        return look.spent_on_own(line.spec, use.period_start, use.period_end)


def notices_about(broker: Broker, budget: str = "") -> Sequence[Dispatch]:
    """The notices about budgets, sent or pending, newest first."""
    return broker.store.outbox.under(f"budget/{budget}/" if budget else "budget/")


def check(broker: Broker) -> list[Notice]:
    """Record the thresholds that budgets have passed since the last check, and queue their notices; returns these.

    Any number of processes may do this concurrently and repeatedly: each threshold is reported once per period. Sends
    nothing: see `notify.deliver`. Raises `StoreProblem`, and `InvalidInput` if no policy can be read.
    """
    now, told = broker.clock.now(), list[Notice]()
    for line in budgets(broker):
        marks = passed(line.alerts, line.limit, line.use.spent, line.forecast.expected)
        fresh = {mark: _notice(line, mark) for mark in marks if mark not in line.marks}
        if fresh:
            quiet = set(fresh) - _worth_telling(fresh)
            new = broker.store.budget_marks.passed(
                line.spec.id,
                line.use.period_start,
                line.limit,
                fresh,
                quiet,
                {mark: recipients(broker.settings, notice) for mark, notice in fresh.items()},
                now,
            )
            told += [fresh[mark] for mark in new if mark not in quiet]
    return told


def _worth_telling(marks: Collection[str]) -> set[str]:
    """Of several thresholds of one kind passed at once, only the highest is reported; the others count as reported."""
    highest: dict[str, str] = {}
    for mark in sorted((mark for mark in marks if mark != EXCEEDED), key=lambda mark: threshold(mark)[1] or 100.0):
        highest[threshold(mark)[0]] = mark
    return {*highest.values(), *({EXCEEDED} & set(marks))}


def _notice(line: BudgetLine, mark: str) -> Notice:
    name, when, limit, use = line.spec.id, line.period_name, line.limit, line.use
    spent, all_of_it, held = alike(use.spent, limit, use.held)
    state = f"{spent} of {all_of_it} is spent; running and waiting jobs hold {held}"
    thread = f"budget/{name}/{use.period_start:%Y-%m-%dT%H:%MZ}"
    key, teams = f"{thread}/{limit.as_json()}/{mark}", tuple(line.spec.teams)
    written = f"The budget is written in {line.source}."
    kind, share = threshold(mark)
    if kind == FORECAST:
        end = f" The budget is used up on {line.forecast.used_up_at:%Y-%m-%d}." if line.forecast.used_up_at else ""
        expected, most = alike(line.forecast.expected, limit)
        reached = "" if share is None else f", {share:g}% or more of it"
        title = f"Budget {name}: {expected} expected for {when}, the limit is {most}{reached}"
        body = f"By forecast, not by spending: {state}.{end} {written}"
        return Notice(key, title, body, Severity.WARNING, thread, teams)
    if mark == EXCEEDED:
        title = f"Budget {name} is exceeded by {use.spent - limit} for {when}"
        what = {
            "alert": "Jobs are still admitted: the budget only alerts.",
            "ask": "New jobs are admitted only with an approval.",
            "deny": "No new job is admitted until there is room; running jobs continue within their holds.",
            "stop": "No new job is admitted; once it is exceeded, running jobs are stopped after a checkpoint.",
        }[line.action]
        return Notice(key, title, f"{state}. {what} {written}", Severity.FAILURE, thread, teams)
    title = f"Budget {name}: {mark} of {limit} is spent in {when}"
    (left,) = alike(limit - use.spent)
    return Notice(key, title, f"{state}; {left} is not spent. {written}", Severity.WARNING, thread, teams)


class StoppingBudgets:
    """The budgets that stop running jobs, for `broker.reconciler.controllers.enforcement`: by id, with the time when
    they were first seen to be exceeded; the rule compares. Called for every job; read every few seconds."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: Mapping[str, tuple[BudgetUse, ...]] = {}
        self._read: tuple[str, datetime] | None = None

    def __call__(self, policy: PolicySet, now: datetime) -> Mapping[str, tuple[BudgetUse, ...]]:
        every = _OVER_EVERY * self._broker.clock.scale
        if self._read is None or self._read[0] != policy.version or now - self._read[1] >= every:
            self._found = self._look(policy, now)
            self._read = policy.version, now
        return self._found

    def _look(self, policy: PolicySet, now: datetime) -> Mapping[str, tuple[BudgetUse, ...]]:
        stopping = [rule for rule in rules_of(policy) if rule.config.action == "stop"]
        if not stopping:
            return {}
        with self._broker.store.reading() as look:
            uses = [(rule, spec.id, state(look, spec, now)) for rule in stopping for spec in shares(look, rule.spec)]
        since = self._broker.store.budget_marks.since
        return {
            id: (replace(use, over_since=since(id, use.period_start, rule.config.amount).get(EXCEEDED)),)
            for rule, id, use in uses
        }


class Alerting:
    """Checks budgets, approval requests and anomalies periodically, and sends notices in a thread of its own, so that a
    slow service delays no job. Failures are logged and retried."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next: datetime | None = None
        self._next_anomalies: datetime | None = None
        self._sending: threading.Thread | None = None

    def __call__(self) -> None:
        """Check, if it is time."""
        now = self._broker.clock.now()
        if self._next is not None and now < self._next:
            return
        self._next = now + _LOOK_EVERY * self._broker.clock.scale
        try:
            for notice in (*check(self._broker), *approvers.check(self._broker), *self._anomalies(now)):
                log.warning("%s. %s", notice.title, notice.body)
        except BrokerError as error:
            log.warning("budgets could not be checked: %s", error)
            return
        except Exception:  # an error of gpubroker here must not stop the reconciling of jobs
            log.exception("budgets could not be checked")
            return
        targets = self._broker.settings.notify
        if targets and (self._sending is None or not self._sending.is_alive()):
            self._sending = threading.Thread(target=self._send, name="notices", daemon=True)
            self._sending.start()

    def _anomalies(self, now: datetime) -> list[Notice]:
        if self._next_anomalies is not None and now < self._next_anomalies:
            return []
        self._next_anomalies = now + _ANOMALIES_EVERY * self._broker.clock.scale
        return anomalies.check(self._broker)

    def _send(self) -> None:
        try:
            settings = self._broker.settings
            for one in notify.deliver(self._broker.store, self._broker.clock, settings.notify):
                if one.error:
                    log.warning("%s was not notified of %s: %s", one.target, one.title, one.error)
        except BrokerError as error:
            log.warning("no notice was sent: %s (%s)", error, error.hint)
