"""Budgets: state, forecast, and alerts on thresholds."""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from math import ceil
from typing import Protocol, cast

from broker.app.alerts import approvers, notify, preemptions
from broker.app.alerts.routes import recipients
from broker.app.billing import anomalies
from broker.app.billing.budget_documents import BudgetDetails, BudgetEffect, BudgetLine, JobShareResult, SpentUntil
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, UnknownName
from broker.core.market.offers import MoneyKind
from broker.core.notices import Notice, Severity
from broker.core.policy.policy import BudgetUse, Source
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money, round_distinct
from broker.ledger.budgets import (
    BudgetShare,
    Window,
    budget_shares,
    budget_uses,
    matches,
    period_containing,
    summable_until,
)
from broker.ledger.finops.expectation import MAX_DAYS, expect
from broker.ledger.forecast import (
    EXCEEDED,
    FORECAST,
    Draw,
    SpendingPace,
    forecast,
    passed_thresholds,
    threshold,
)
from broker.ledger.holds import ledger_rate
from broker.ledger.journal import OpenHold
from broker.store.jobs.reader import StoreReader
from broker.store.outbox import Dispatch

log = logging.getLogger(__name__)

_CHECK_EVERY = timedelta(seconds=15)  # of the wall clock
_ANOMALIES_EVERY = timedelta(minutes=10)
_REREAD_EVERY = timedelta(seconds=5)
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


def budget_rules(policy: PolicySet) -> list[BudgetRule]:
    """Every budget of a set, in file order."""
    return [cast("BudgetRule", rule) for rule in policy.rules if rule.kind == "budget"]


def budgets(broker: Broker) -> list[BudgetLine]:
    """Every budget of the active set in its current period, in file order."""
    rules, now = budget_rules(broker.policy()), broker.clock.now()
    with broker.store.reading() as reader:
        machines = _running_jobs(reader)
        lines = [line for rule in rules for line in _budget_lines(reader, rule, machines, now)]
    marks_since = broker.store.budget_marks.since
    return [replace(line, marks=marks_since(line.spec.id, line.use.period_start, line.limit)) for line in lines]


def visible_budgets(lines: Sequence[BudgetLine], teams: Collection[str] | None) -> list[BudgetLine]:
    """The budgets that count only jobs of these teams (None: all budgets). A budget that counts all teams, or names
    them by a pattern, would reveal others' spend."""
    if teams is None:
        return list(lines)
    return [line for line in lines if line.spec.teams and set(line.spec.teams) <= set(teams)]


@dataclass(frozen=True, slots=True)
class _RunningMachines:
    """The current hourly cost of a job's machines (USD), and their expected end (UTC; None: unknown). ``to_start``: the
    expected cost of those that are starting (USD; None: unknown)."""

    rate: Money = Money.ZERO
    finish: datetime | None = None
    to_start: Money | None = None


def _running_jobs(reader: StoreReader) -> Mapping[tuple[str, str], _RunningMachines]:
    """The jobs with machines, by job and kind of money."""
    machines_by_job: dict[tuple[str, str], _RunningMachines] = {}
    running = {attempt.job_id for attempt in reader.live_attempts()}
    for view in reader.views(sorted(running)):
        for attempt in view.attempts:
            placement = attempt.placement
            key = (view.id, placement.money.value)
            if not attempt.over and attempt.up_since is None and placement.duration is not None:
                machines_by_job.setdefault(key, _RunningMachines(to_start=placement.expected_cost))
            elif not attempt.over and attempt.up_since is not None:
                earlier = machines_by_job.get(key, _RunningMachines(finish=placement.finish))
                rate = earlier.rate + ledger_rate(placement.offer) * placement.nodes
                machines_by_job[key] = _RunningMachines(
                    rate, placement.finish and earlier.finish and max(placement.finish, earlier.finish)
                )
    return machines_by_job


def _draw(hold: OpenHold, machines: Mapping[tuple[str, str], _RunningMachines], now: datetime) -> Draw:
    """The expected spend of a job. For a job that should have ended by now only its hold is expected."""
    running = machines.get((hold.job_id, hold.money))
    if running is None:
        return Draw(hold.burn)
    if not running.rate:
        return Draw(hold.burn, expected=running.to_start)
    if running.finish is None or running.finish <= now:
        return Draw(hold.burn, running.rate)
    return Draw(hold.burn, running.rate, running.rate.for_duration(running.finish - now))


def _pace(reader: StoreReader, spec: BudgetSpec, use: BudgetUse, now: datetime) -> SpendingPace | None:
    """The forecast for the rest of the period from the days before today (UTC); None if they are too few."""
    today = datetime.combine(now.astimezone(UTC), time(), UTC)
    days = [float(day.dollars) for day in reader.daily_spending(spec, today - MAX_DAYS * _DAY, today)]
    days_ahead = (use.period_end - now) / _DAY
    first_day = next((number for number, day in enumerate(days) if day), len(days))
    daily_forecast = expect(days[first_day:], ceil(days_ahead)) if days_ahead > 0 else None
    if daily_forecast is None:
        return None
    day_fraction = days_ahead / ceil(days_ahead)
    return SpendingPace(
        *(
            Money(round(amount * day_fraction * 1_000_000))
            for amount in (daily_forecast.amount, daily_forecast.low, daily_forecast.high)
        )
    )


def budget_parts(reader: StoreReader, spec: BudgetSpec) -> list[BudgetSpec]:
    """A budget; of one per user, team or project, the share of each that has money and is in its scope."""
    if not spec.per:
        return [spec]
    names = sorted(reader.names_with_money(spec.per))
    return [spec.share(name) for name in names if matches(getattr(spec, f"{spec.per}s"), name)]


def _budget_lines(
    reader: StoreReader, rule: BudgetRule, machines: Mapping[tuple[str, str], _RunningMachines], now: datetime
) -> list[BudgetLine]:
    """The lines of a budget: of its shares, those with money in the period."""
    lines = [_budget_line(reader, rule, spec, machines, now) for spec in budget_parts(reader, rule.spec)]
    used_lines = [line for line in lines if not rule.spec.per or line.use.spent or line.use.held]
    return used_lines or [_budget_line(reader, rule, rule.spec, machines, now)]


def _budget_line(
    reader: StoreReader,
    rule: BudgetRule,
    spec: BudgetSpec,
    machines: Mapping[tuple[str, str], _RunningMachines],
    now: datetime,
) -> BudgetLine:
    limit = rule.config.amount
    use = current_use(reader, spec, now)
    holds = reader.open_holds(spec)
    draws = [_draw(hold, machines, now) for hold in holds]
    period_forecast = forecast(use, limit, draws, now, _pace(reader, spec, use, now))
    return BudgetLine(
        spec, limit, rule.source, rule.config.action, rule.config.alerts, use, period_forecast, {}, holds, now
    )


def current_use(reader: StoreReader, budget: BudgetSpec, now: datetime) -> BudgetUse:
    """The spend and holds of a budget in its current period."""
    window = period_containing(budget.period, budget.timezone, now)
    holds = reader.held(budget, summable_until(budget, now))
    return budget_uses(budget, window, now, partial(reader.spent, budget), holds)[0]


def budget_details(
    broker: Broker, name: str | None = None, teams: Collection[str] | None = None, *, by_day: bool = False
) -> list[BudgetDetails]:
    """The `visible_budgets` budgets, or one of them, with details. ``by_day``: also the spend by day. Raises
    `UnknownName`."""
    lines = visible_budgets(budgets(broker), teams)
    selected = [line for line in lines if name in (None, line.spec.id, line.spec.rule)]
    if name is not None and not selected:
        raise UnknownName("budget", name, [line.spec.id for line in lines])
    return [_details(broker, line, by_day) for line in selected]


def _details(broker: Broker, line: BudgetLine, by_day: bool) -> BudgetDetails:
    owned_spend = spend_on_owned(broker, line)
    return BudgetDetails.of(
        line,
        notices_about(broker, line.spec.id),
        on_own=owned_spend,
        rented=line.use.spent - owned_spend,
        held_by_job=[JobShareResult.of(job, share) for job, share in line.held_by_job],
        days=daily_spend(broker, line) if by_day else None,
    )


def daily_spend(broker: Broker, line: BudgetLine) -> list[SpentUntil]:
    """The spend of the current period by day, up to now."""
    now, start, spec = broker.clock.now(), line.use.period_start, line.spec
    totals = [SpentUntil(until=start, total=Money.ZERO)]
    with broker.store.reading() as reader:
        while (previous := totals[-1]).until < min(now, line.use.period_end):
            _, midnight = period_containing("day", spec.timezone, previous.until)
            until = min(midnight, now, line.use.period_end)
            totals.append(SpentUntil(until=until, total=previous.total + reader.spent(spec, previous.until, until)))
    return totals


def request_effects(
    broker: Broker, requests: Mapping[str, Mapping[MoneyKind, Money] | None], teams: Collection[str] | None
) -> dict[str, list[BudgetEffect]]:
    """What open requests do to the `visible_budgets` budgets, by job or purchase. ``requests``: the amount asked for
    (USD) of what each of them holds, None: all of it."""
    effects: dict[str, list[BudgetEffect]] = {id: [] for id in requests}
    if not requests:
        return effects
    lines = visible_budgets(budgets(broker), teams)
    with broker.store.reading() as reader:
        for line in lines:
            held, spent = Counter[Window](), {line.use.period_start: line.use.spent}
            for _, share in line.held_by_job:
                held[share.period] += share.held.micros
            for id, asked in requests.items():
                burns = {hold.money: _burn_of_request(hold, asked, line.at) for hold in line.holds if hold.job_id == id}
                for share in budget_shares([line.spec], burns):
                    if share.period[0] not in spent:
                        spent[share.period[0]] = reader.spent(line.spec, *share.period)
                    effects[id].append(_effect(line, share, spent[share.period[0]], Money(held[share.period])))
    return effects


def _burn_of_request(hold: OpenHold, asked: Mapping[MoneyKind, Money] | None, now: datetime) -> Burn:
    burn = hold.burn.seen(now)
    return burn if asked is None else burn.last(min(asked.get(hold.money, Money.ZERO), burn.amount))


def _effect(line: BudgetLine, share: BudgetShare, spent: Money, held: Money) -> BudgetEffect:
    return BudgetEffect(
        budget=line.spec.id,
        period_name=share.period_name,
        limit=line.limit,
        spent=spent,
        held=held,
        requested=share.held,
        left=line.limit - spent - held,
    )


def spend_on_owned(broker: Broker, line: BudgetLine) -> Money:
    """The part of the spend under the budget in its current period that was for owned and reserved capacity (USD)."""
    use = line.use
    with broker.store.reading() as reader:  # to the end of the period, as for spend: machines may be paid ahead
        return reader.spent_on_own(line.spec, use.period_start, use.period_end)


def notices_about(broker: Broker, budget: str = "") -> Sequence[Dispatch]:
    """The notices about budgets, sent or pending, newest first."""
    return broker.store.outbox.under(f"budget/{budget}/" if budget else "budget/")


def queue_notices(broker: Broker) -> list[Notice]:
    """Record the thresholds that budgets have passed since the last check, and queue their notices; returns these.

    Any number of processes may do this concurrently and repeatedly: each threshold is reported once per period. Sends
    nothing: see `notify.deliver`. Raises `StoreProblem`, and `InvalidInput` if no policy can be read.
    """
    now, notices = broker.clock.now(), list[Notice]()
    for line in budgets(broker):
        marks = passed_thresholds(line.alerts, line.limit, line.use.spent, line.forecast.expected)
        new_notices = {mark: _notice(line, mark) for mark in marks if mark not in line.marks}
        if new_notices:
            unreported = set(new_notices) - _highest_marks(new_notices)
            recorded_marks = broker.store.budget_marks.passed(
                line.spec.id,
                line.use.period_start,
                line.limit,
                new_notices,
                unreported,
                {mark: recipients(broker.settings, notice) for mark, notice in new_notices.items()},
                now,
            )
            notices += [new_notices[mark] for mark in recorded_marks if mark not in unreported]
    return notices


def _highest_marks(marks: Collection[str]) -> set[str]:
    """Of several thresholds of one kind passed at once, only the highest is reported; the others count as reported."""
    highest: dict[str, str] = {}
    for mark in sorted((mark for mark in marks if mark != EXCEEDED), key=lambda mark: threshold(mark)[1] or 100.0):
        highest[threshold(mark)[0]] = mark
    return {*highest.values(), *({EXCEEDED} & set(marks))}


def _notice(line: BudgetLine, mark: str) -> Notice:
    name, period, limit, use = line.spec.id, line.period_name, line.limit, line.use
    spent_text, limit_text, held_text = round_distinct(use.spent, limit, use.held)
    state = f"{spent_text} of {limit_text} is spent; running and waiting jobs hold {held_text}"
    thread = f"budget/{name}/{use.period_start:%Y-%m-%dT%H:%MZ}"
    key, teams = f"{thread}/{limit.as_json()}/{mark}", tuple(line.spec.teams)
    source_text = f"The budget is written in {line.source}."
    kind, share = threshold(mark)
    if kind == FORECAST:
        end = f" The budget is used up on {line.forecast.used_up_at:%Y-%m-%d}." if line.forecast.used_up_at else ""
        expected_text, expected_limit = round_distinct(line.forecast.expected, limit)
        share_text = "" if share is None else f", {share:g}% or more of it"
        title = f"Budget {name}: {expected_text} expected for {period}, the limit is {expected_limit}{share_text}"
        body = f"By forecast, not by spending: {state}.{end} {source_text}"
        return Notice(key, title, body, Severity.WARNING, thread, teams)
    if mark == EXCEEDED:
        title = f"Budget {name} is exceeded by {use.spent - limit} for {period}"
        effect = {
            "alert": "Jobs are still admitted: the budget only alerts.",
            "ask": "New jobs are admitted only with an approval.",
            "deny": "No new job is admitted until there is room; running jobs continue within their holds.",
            "stop": "No new job is admitted; once it is exceeded, running jobs are stopped after a checkpoint.",
        }[line.action]
        return Notice(key, title, f"{state}. {effect} {source_text}", Severity.FAILURE, thread, teams)
    title = f"Budget {name}: {mark} of {limit} is spent in {period}"
    (remaining,) = round_distinct(limit - use.spent)
    return Notice(key, title, f"{state}; {remaining} is not spent. {source_text}", Severity.WARNING, thread, teams)


class StoppingBudgets:
    """The budgets that stop running jobs, for `broker.reconciler.controllers.enforcement`: by id, with the time when
    they were first seen to be exceeded; the rule compares. Called for every job; read every few seconds."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: Mapping[str, tuple[BudgetUse, ...]] = {}
        self._read: tuple[str, datetime] | None = None

    def __call__(self, policy: PolicySet, now: datetime) -> Mapping[str, tuple[BudgetUse, ...]]:
        interval = _REREAD_EVERY * self._broker.clock.scale
        if self._read is None or self._read[0] != policy.version or now - self._read[1] >= interval:
            self._found = self._look(policy, now)
            self._read = policy.version, now
        return self._found

    def _look(self, policy: PolicySet, now: datetime) -> Mapping[str, tuple[BudgetUse, ...]]:
        stopping_rules = [rule for rule in budget_rules(policy) if rule.config.action == "stop"]
        if not stopping_rules:
            return {}
        with self._broker.store.reading() as reader:
            uses = [
                (rule, spec.id, current_use(reader, spec, now))
                for rule in stopping_rules
                for spec in budget_parts(reader, rule.spec)
            ]
        marks_since = self._broker.store.budget_marks.since
        return {
            id: (replace(use, over_since=marks_since(id, use.period_start, rule.config.amount).get(EXCEEDED)),)
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
        now = self._broker.clock.now()
        if self._next is not None and now < self._next:
            return
        self._next = now + _CHECK_EVERY * self._broker.clock.scale
        try:
            queues = (queue_notices, approvers.queue_notices, preemptions.queue_notices)
            for notice in (*(one for queue in queues for one in queue(self._broker)), *self._anomalies(now)):
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
        return anomalies.queue_notices(self._broker)

    def _send(self) -> None:
        try:
            settings = self._broker.settings
            for delivery in notify.deliver(self._broker.store, self._broker.clock, settings.notify):
                if delivery.error:
                    log.warning("%s was not notified of %s: %s", delivery.target, delivery.title, delivery.error)
        except BrokerError as error:
            log.warning("no notice was sent: %s (%s)", error, error.hint)
