"""An amount of money per period for the jobs in a scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, timedelta
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, StrictBool, WithJsonSchema, field_validator, model_validator

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, BudgetUse, Facts, Verdict
from broker.core.ports import BudgetSpec
from broker.core.validation import parse_each
from broker.core.values.burns import Burn
from broker.core.values.money import Money, round_distinct
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import fixed_period, hold_by_period, period_name
from broker.ledger.forecast import FORECAST
from policies.bound_rule import BoundRule, allow, deny, duration_text, guardrail, pending_text, require_approval
from policies.fields import Day, Limit, TimeZone, parse_percent
from policies.scope import MayAsk, check_action_keys

_KIND = {"enum": list(MoneyKind)}
Kinds = Annotated[
    tuple[MoneyKind, ...],
    WithJsonSchema({"anyOf": [_KIND, {"type": "array", "items": _KIND, "minItems": 1}], "default": ["cash"]}),
]
_DEFAULT_GRACE = timedelta(minutes=15)


def parse_alerts(value: object) -> tuple[str, ...]:
    """Percentages of the amount for what is spent (``80%``) and for what is expected (``forecast 80%``), and
    ``forecast`` for more than the amount; an empty list means no alerts."""
    items = value if isinstance(value, list | tuple) else [value]
    marks = tuple(parse_each(enumerate(items), lambda _, item: _alert(item)))
    if len(set(marks)) < len(marks):
        raise ValueError("names one threshold twice")
    return marks


_FORECASTS = (FORECAST, f"{FORECAST} 80%")


def _alert(value: object) -> str:
    if value == FORECAST:
        return FORECAST
    is_forecast = isinstance(value, str) and value.startswith(f"{FORECAST} ")
    share = (
        f"{parse_percent(str(value)[len(FORECAST) :].strip() if is_forecast else value, alternatives=_FORECASTS):g}%"
    )
    return f"{FORECAST} {share}" if is_forecast else share


_ALERT_SCHEMA = {"type": "string", "pattern": rf"^(({FORECAST}\s+)?[0-9.]+\s*%|{FORECAST})$"}
Alerts = Annotated[
    tuple[str, ...],
    PlainValidator(parse_alerts),
    WithJsonSchema({"anyOf": [_ALERT_SCHEMA, {"type": "array", "items": _ALERT_SCHEMA}]}),
]


class BudgetTerms(MayAsk):
    """``amount`` (USD) may be spent and held in each calendar ``period`` in ``timezone``.

    ``period: fixed`` lasts ``from`` a day ``to`` a day, inclusive; outside it the budget grants nothing. ``counts``:
    the kinds of money; sandbox money needs its own budget. ``alerts``: thresholds in percent of the amount, for what is
    spent (``80%``) and for what is expected by the end of the period (``forecast 80%``), and ``forecast`` for more than
    the amount; holds do not count. ``action`` for requests that do not fit: ``alert`` allows them and alerts,
    ``require_approval`` requires an approval (``approvers``, ``expires``, ``own_requests``), ``deny`` refuses them;
    ``stop`` refuses them, and stops running jobs, checkpoint first, ``grace`` after spending exceeded the amount.
    ``top_up: false``: jobs get no more money than at admission.
    """

    amount: Limit
    period: Literal["day", "week", "month", "quarter", "fixed"]
    first: Day | None = Field(None, alias="from")
    last: Day | None = Field(None, alias="to")
    timezone: TimeZone = "UTC"
    counts: Kinds = (MoneyKind.CASH,)
    alerts: Alerts = ("50%", "80%", "100%", FORECAST)
    action: Literal["alert", "ask", "deny", "stop"] = "deny"
    grace: PositiveDuration | None = None
    top_up: StrictBool = True

    @model_validator(mode="after")
    def _grace_of_a_stop(self) -> BudgetTerms:
        check_action_keys("stop", self.action, ("grace",) if self.grace else ())
        return self

    @model_validator(mode="after")
    def _days(self) -> BudgetTerms:
        fixed = self.period == "fixed"
        days = {"from": self.first, "to": self.last}
        parse_each(days.items(), lambda key, day: _check_day(key, day, fixed=fixed))
        if self.first and self.last and self.last < self.first:
            parse_each([("to", self.last)], lambda _, day: _reject_early_end(day, self.first))
        return self

    @property
    def stretch(self) -> str:
        """The name of the period in the ledger."""
        return fixed_period(self.first, self.last) if self.first and self.last else self.period

    @field_validator("counts", mode="before")
    @classmethod
    def _kinds(cls, value: object) -> tuple[MoneyKind, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not items:
            raise ValueError(f"expected a list of {', '.join(MoneyKind)}, such as [cash]")
        kinds = tuple(parse_each(enumerate(items), lambda _, item: _kind(item)))
        if len(set(kinds)) < len(kinds):
            raise ValueError("names one kind of money twice")
        if MoneyKind.SANDBOX in kinds and set(kinds) != {MoneyKind.SANDBOX}:
            raise ValueError("sandbox money never mixes with real money; write two budgets")
        return kinds


def _check_day(key: str, day: date | None, *, fixed: bool) -> None:
    if fixed and day is None:
        raise ValueError(f"`period: fixed` needs `{key}`; expected a day such as 2026-12-24")
    if not fixed and day is not None:
        raise ValueError("is for `period: fixed` only; this period follows the calendar")


def _reject_early_end(last: date, first: date | None) -> None:
    raise ValueError(f"is before the first day, {first}; got {last}")


def _kind(value: object) -> MoneyKind:
    try:
        return MoneyKind(value)  # type: ignore[arg-type] # anything but a known kind raises ValueError
    except ValueError:
        raise ValueError(f"expected one of {', '.join(MoneyKind)}; got {value!r}") from None


@guardrail("budget")
class Budget(BoundRule[BudgetTerms]):
    """Objects to a request whose share of a period exceeds limit − spent − held in any period it touches.

    Judges everything the job would hold, including what it holds now, counted once. Single placements pass: only a
    submission has a known amount. Denies if the ledger's figures do not cover the whole time. Running jobs are affected
    by ``action: stop`` only.
    """

    @cached_property
    def spec(self) -> BudgetSpec:
        """The sums the ledger must compute for this budget."""
        return BudgetSpec(
            id=self.name,
            period=self.config.stretch,
            timezone=self.config.timezone,
            counts=frozenset(self.config.counts),
            teams=self.scope.team,
            projects=self.scope.project,
            workloads=self.scope.workload,
            users=self.scope.user,
            environments=self.scope.environment,
            per=self.per,
        )

    def _id(self, action: Action) -> str:
        """The id of the budget or share that an action is judged by."""
        return self.spec.share(action.whose(self.per)).id

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is ActionKind.CONTINUE:
            return self._running(action, facts)
        if action.hold is None:
            return allow(self, "no_amount_yet", "applies to submissions, not to single placements")
        requested = sum((action.hold.get(kind, Money.ZERO) for kind in self.config.counts), Money.ZERO)
        burns = action.dated(self.config.counts)
        total = sum((burn.amount for burn in burns), Money.ZERO)
        if total <= Money.ZERO:
            return allow(self, "asks_nothing", f"requests no {' or '.join(self.config.counts)}")
        if action.kind is ActionKind.EXTEND and not self.config.top_up and requested > Money.ZERO:
            message = (
                f"budget {self._id(action)} has top_up: false, so a job gets no more money than at admission; "
                f"{requested} more is requested"
            )
            return deny(self, "no_top_up", message, budget=self.name, asked=requested)
        uses = facts.budgets.get(self._id(action), ())
        shares = _shares(burns, uses)
        if uses and self.config.period == "fixed" and sum(shares, Money.ZERO) != total:
            period_text = period_name(self.config.stretch, self.config.timezone, uses[0].period_start)
            begins, ends = min(burn.start for burn in burns), max(burn.end for burn in burns)
            return deny(
                self,
                "outside_of_period",
                f"budget {self._id(action)} covers {period_text} only; {total} is {_amount_verb(action)} for "
                f"{begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; it has to lie within"
                f" {uses[0].period_start.astimezone(UTC):%Y-%m-%d %H:%M} and"
                f" {uses[0].period_end.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
                budget=self.name,
                asked=total,
                period=period_text,
                period_start=uses[0].period_start.isoformat(),
                within_until=uses[0].period_end.isoformat(),
            )
        if sum(shares, Money.ZERO) != total:
            return deny(
                self,
                "budget_state_unknown",
                f"the ledger has no figures for part of the time for which {total} is requested",
                budget=self.name,
                asked=total,
            )
        if exceeded := self._full_periods(action, facts, shares):
            return self._objection(action, *exceeded[0], total)
        return allow(self, "fits", f"{total} fits", budget=self.name, asked=total, limit=self.config.amount)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return tuple(
            Fact(
                aspect=Aspect.BUDGET,
                of=use.period_start.astimezone(UTC).isoformat(),
                value=(use.spent + use.held + share).micros,
            )
            for use, share in self._full_periods(
                action, facts, _shares(action.dated(self.config.counts), facts.budgets.get(self._id(action), ()))
            )
        )

    def _full_periods(self, action: Action, facts: Facts, shares: Sequence[Money]) -> list[tuple[BudgetUse, Money]]:
        """Each period without room: its use without the job's own holds, and the job's share. ``shares``: the job's
        share of every period.
        """
        own_holds = [action.own[kind].seen(facts.now) for kind in self.config.counts if kind in action.own]
        uses = facts.budgets.get(self._id(action), ())
        exceeded = []
        for use, own, share in zip(uses, _shares(own_holds, uses), shares, strict=True):
            held_by_others = use.held - own - use.behind
            if use.spent + held_by_others + share > self.config.amount:
                exceeded.append((replace(use, held=held_by_others), share))
        return exceeded

    def _objection(self, action: Action, use: BudgetUse, share: Money, whole: Money) -> Verdict:
        """``use``: without the job's own holds; ``whole``: all the job would hold."""
        limit = self.config.amount
        remaining = limit - use.spent - use.held
        period = period_name(self.config.stretch, self.config.timezone, use.period_start)
        amounts = round_distinct(limit, whole, share, abs(remaining), use.spent, use.held)
        limit_text, total_text, share_text, remaining_text, spent, held = amounts
        part = "" if share == whole else f", {share_text} of it in {period}"
        state = (
            f"{remaining_text} is left" if remaining >= Money.ZERO else f"the budget is overdrawn by {remaining_text}"
        )
        open_requests = [request for request in use.asks if request.job_id != action.job_id]
        message = (
            f"budget {self._id(action)} of {limit_text} for {period}: {total_text} {_amount_verb(action)}{part}; "
            f"{state} ({spent} spent, {held} held{' by others' if action.own else ''}"
            f"{pending_text(open_requests, action.job.team)})"
        )
        figures = {
            "budget": self.name,
            "asked": whole,
            "share": share,
            "left": remaining,
            "limit": limit,
            "spent": use.spent,
            "held": use.held,
            "period": period,
            "period_start": use.period_start.isoformat(),
            "period_end": use.period_end.isoformat(),
        }
        if open_requests:
            figures["undecided"] = sum((request.held for request in open_requests), Money.ZERO)
        if self.config.action == "alert":
            return allow(
                self, "over_budget_alert", f"{message}; the request is allowed and an alert is sent", **figures
            )
        if self.config.asking is not None:
            own = sum((request.held for request in open_requests if request.user == action.user), Money.ZERO)
            # Needs of the broker for an admitted job are not requests of its owner.
            is_own_request = action.kind is ActionKind.LAUNCH or action.by_owner
            if is_own_request and own > Money.ZERO and own + share > limit:
                allowed_more = max(limit - own, Money.ZERO)
                message += f"; {action.user}'s open requests already hold {own}; one user's open requests may hold "
                message += f"at most {limit}, so at most {allowed_more} more" if allowed_more else f"at most {limit}"
                return deny(self, "too_much_is_asked", message, own=own, more=allowed_more, **figures)
            return require_approval(self, self.config.asking, "over_budget", message, **figures)
        return deny(self, "over_budget", message, **figures)

    def _running(self, action: Action, facts: Facts) -> Verdict:
        """Whether a running job may continue: until the grace after spending exceeded the amount ends."""
        if self.config.action != "stop":
            return allow(self, "not_for_what_runs", "does not stop running jobs")
        if action.placement is None or action.placement.money not in self.config.counts:
            return allow(self, "asks_nothing", f"costs no {' or '.join(self.config.counts)}")
        limit, grace = self.config.amount, self.config.grace or _DEFAULT_GRACE
        for use in facts.budgets.get(self._id(action), ()):
            if not use.period_start <= facts.now < use.period_end or use.spent <= limit or use.over_since is None:
                continue
            period = period_name(self.config.stretch, self.config.timezone, use.period_start)
            limit_text, spent = round_distinct(limit, use.spent)
            state = f"budget {self._id(action)} of {limit_text} for {period} is exceeded: {spent} spent"
            figures = {
                "budget": self.name,
                "limit": limit,
                "spent": use.spent,
                "period": period,
                "over_since": use.over_since.isoformat(),
            }
            if facts.now < use.over_since + grace:
                message = f"{state}; running jobs stop at {use.over_since + grace:%Y-%m-%d %H:%M:%S} UTC"
                stops_at = (use.over_since + grace).isoformat()
                return allow(self, "in_grace", message, **figures, stops_at=stops_at)
            return deny(
                self,
                "exceeded",
                f"{state}; running jobs stop after a grace period of {duration_text(grace)}",
                **figures,
            )
        return allow(self, "within_limit", f"spending is within {limit}")


def _shares(burns: Sequence[Burn], uses: Iterable[BudgetUse]) -> list[Money]:
    """The amount that falls into each of these periods."""
    return hold_by_period([(use.period_start, use.period_end) for use in uses], burns)


def _amount_verb(action: Action) -> str:
    """The verb for the amount: a job with a hold needs it rather than requests all of it."""
    return "needed" if action.own else "requested"
