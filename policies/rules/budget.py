"""So much money in each period, for those in the scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, PlainValidator, StrictBool, WithJsonSchema, field_validator, model_validator

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, BudgetUse, Facts, Source, Verdict
from broker.core.ports import BudgetSpec
from broker.core.validation import each
from broker.core.values.burns import Burn
from broker.core.values.money import Money, alike
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import fixed_period, held_in, period_name
from broker.ledger.forecast import FORECAST
from policies.approval_config import MayAsk, only_for
from policies.fields import Day, Limit, TimeZone, parse_percent
from policies.scope import Scope
from policies.verdicts import allow, ask, deny, length, out_of_scope, undecided

_KIND = {"enum": list(MoneyKind)}
Kinds = Annotated[
    tuple[MoneyKind, ...],
    WithJsonSchema({"anyOf": [_KIND, {"type": "array", "items": _KIND, "minItems": 1}], "default": ["cash"]}),
]
_DEFAULT_GRACE = timedelta(minutes=15)


def parse_alerts(value: object) -> tuple[str, ...]:
    """Percentages of the amount, and ``forecast``; none at all is a choice, too."""
    items = value if isinstance(value, list | tuple) else [value]
    marks = tuple(each(enumerate(items), lambda _, item: _alert(item)))
    if len(set(marks)) < len(marks):
        raise ValueError("names one threshold twice")
    return marks


def _alert(value: object) -> str:
    if value == FORECAST:
        return FORECAST
    try:
        return f"{parse_percent(value):g}%"
    except ValueError as error:
        raise ValueError(f"{error}; or {FORECAST}") from None


_ALERT_SCHEMA = {"type": "string", "pattern": rf"^([0-9.]+\s*%|{FORECAST})$"}
Alerts = Annotated[
    tuple[str, ...],
    PlainValidator(parse_alerts),
    WithJsonSchema({"anyOf": [_ALERT_SCHEMA, {"type": "array", "items": _ALERT_SCHEMA}]}),
]


class Terms(MayAsk):
    """``amount`` (USD) may be spent and held in each ``period`` of the calendar in ``timezone``.

    ``period: fixed`` goes ``from`` a day ``to`` a day, both included; for what lies outside of it there is nothing.
    ``counts``: which kinds of money; sandbox money is counted alone, it never meets real budgets. ``alerts``: at which
    parts of the amount, spent and held, people are told, and whether when the ``forecast`` exceeds it. ``action``: what
    happens to what does not fit: ``alert`` lets it pass and tells, ``ask`` asks the ``approvers`` (``expires``,
    ``own_requests``), ``deny`` refuses it; ``stop`` refuses it, and stops what runs, checkpoint first, ``grace`` after
    more was spent than the amount. ``top_up: false``: jobs get no more than they were admitted with.
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
    def _grace_of_a_stop(self) -> Terms:
        only_for("stop", self.action, ("grace",) if self.grace else ())
        return self

    @model_validator(mode="after")
    def _days(self) -> Terms:
        fixed = self.period == "fixed"
        given = {"from": self.first, "to": self.last}
        each(given.items(), lambda key, day: _fits(key, day, fixed=fixed))
        if self.first and self.last and self.last < self.first:
            each([("to", self.last)], lambda _, day: _too_early(day, self.first))
        return self

    @property
    def stretch(self) -> str:
        """The period as the ledger knows it."""
        return fixed_period(self.first, self.last) if self.first and self.last else self.period

    @field_validator("counts", mode="before")
    @classmethod
    def _kinds(cls, value: object) -> tuple[MoneyKind, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not items:
            raise ValueError(f"expected a list of {', '.join(MoneyKind)}, such as [cash]")
        kinds = tuple(each(enumerate(items), lambda _, item: _kind(item)))
        if len(set(kinds)) < len(kinds):
            raise ValueError("names one kind of money twice")
        if MoneyKind.SANDBOX in kinds and set(kinds) != {MoneyKind.SANDBOX}:
            raise ValueError("sandbox money is pretend and never meets real money: write two budgets")
        return kinds


def _fits(key: str, day: date | None, *, fixed: bool) -> None:
    if fixed and day is None:
        raise ValueError(f"`period: fixed` needs `{key}`; expected a day such as 2026-12-24")
    if not fixed and day is not None:
        raise ValueError("is for `period: fixed` only; this period begins and ends on the calendar")


def _too_early(last: date, first: date | None) -> None:
    raise ValueError(f"is before the first day, {first}; got {last}")


def _kind(value: object) -> MoneyKind:
    try:
        return MoneyKind(value)  # type: ignore[arg-type] # anything but a known kind raises ValueError
    except ValueError:
        raise ValueError(f"expected one of {', '.join(MoneyKind)}; got {value!r}") from None


@dataclass(frozen=True, eq=False)
class Budget:
    """Objects to what does not fit into each period that it touches: its share there ≤ limit − spent − held.

    All that the job would hold is judged, with what it holds already: that counts once. Single placements pass: how
    much money is asked is known for a whole submission only. Without the ledger's figures for the whole time, it
    denies. What runs is judged by ``action: stop`` alone.
    """

    kind: ClassVar[str] = "budget"
    Config: ClassVar[type[BaseModel]] = Terms

    name: str
    config: Terms
    scope: Scope
    source: Source

    @cached_property
    def spec(self) -> BudgetSpec:
        """What the ledger must add up for it."""
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
        )

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        if action.kind is ActionKind.CONTINUE:
            return self._running(action, facts)
        if action.hold is None:
            return allow(self, "no_amount_yet", "judges whole submissions, not single placements")
        asked = sum((action.hold.get(kind, Money.ZERO) for kind in self.config.counts), Money.ZERO)
        dated = action.dated(self.config.counts)
        whole = sum((burn.amount for burn in dated), Money.ZERO)
        if whole <= Money.ZERO:
            return allow(self, "asks_nothing", f"asks for no {' or '.join(self.config.counts)}")
        if action.kind is ActionKind.EXTEND and not self.config.top_up and asked > Money.ZERO:
            message = f"budget {self.name} lets no job have more than it was admitted with; {asked} more is asked"
            return deny(self, "no_top_up", message, budget=self.name, asked=asked)
        uses = facts.budgets.get(self.name, ())
        shares = _shares(dated, uses)
        if uses and self.config.period == "fixed" and sum(shares, Money.ZERO) != whole:
            when = period_name(self.config.stretch, self.config.timezone, uses[0].period_start)
            begins, ends = min(burn.start for burn in dated), max(burn.end for burn in dated)
            return deny(
                self,
                "outside_of_period",
                f"budget {self.name} is for {when} only, and {whole} is {_wanted(action)} for"
                f" {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC",
                budget=self.name,
                asked=whole,
                period=when,
            )
        if sum(shares, Money.ZERO) != whole:
            return deny(
                self,
                "budget_state_unknown",
                f"the ledger's state of the budget is not known for all the time that {whole} is for",
                budget=self.name,
                asked=whole,
            )
        if exceeded := self._exceeded(action, facts, shares):
            return self._objection(action, *exceeded[0], whole)
        return allow(self, "fits", f"{whole} fits", budget=self.name, asked=whole, limit=self.config.amount)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return tuple(
            Fact(
                aspect=Aspect.BUDGET,
                of=others.period_start.astimezone(UTC).isoformat(),
                value=(others.spent + others.held + share).micros,
            )
            for others, share in self._exceeded(
                action, facts, _shares(action.dated(self.config.counts), facts.budgets.get(self.name, ()))
            )
        )

    def _exceeded(self, action: Action, facts: Facts, shares: Sequence[Money]) -> list[tuple[BudgetUse, Money]]:
        """Each period in which there is no room: its state without what the job holds itself, and what the job would
        hold of it. ``shares``: that of every period."""
        own = [action.own[kind].seen(facts.now) for kind in self.config.counts if kind in action.own]
        found = []
        for use, share in zip(facts.budgets.get(self.name, ()), shares, strict=True):
            others = use.held - held_in(_period(use), own)
            if use.spent + others + share > self.config.amount:
                found.append((replace(use, held=others), share))
        return found

    def _objection(self, action: Action, use: BudgetUse, share: Money, whole: Money) -> Verdict:
        """``use``: without what the job holds itself; ``whole``: all that it would hold."""
        limit = self.config.amount
        left = limit - use.spent - use.held
        period = period_name(self.config.stretch, self.config.timezone, use.period_start)
        amounts = alike(limit, whole, share, abs(left), use.spent, use.held)
        all_of_it, wants, then, rest, spent, held = amounts
        part = "" if share == whole else f", {then} of it in {period}"
        state = f"{rest} is left" if left >= Money.ZERO else f"it is overdrawn by {rest}"
        asks = [one for one in use.asks if one.job_id != action.job_id]
        message = (
            f"budget {self.name} of {all_of_it} for {period}: {wants} {_wanted(action)}{part}; {state} ({spent} spent, "
            f"{held} held{' by others' if action.own else ''}{undecided(asks)})"
        )
        figures = {
            "budget": self.name,
            "asked": whole,
            "share": share,
            "left": left,
            "limit": limit,
            "spent": use.spent,
            "held": use.held,
            "period": period,
            "period_start": use.period_start.isoformat(),
            "period_end": use.period_end.isoformat(),
        }
        if asks:
            figures["undecided"] = sum((one.held for one in asks), Money.ZERO)
        if self.config.action == "alert":
            return allow(self, "over_budget_alert", f"{message}; it passes, and people are told", **figures)
        if self.config.asking is not None:
            own = sum((one.held for one in asks if one.user == action.user), Money.ZERO)
            # What the broker needs for what was admitted is no further request of theirs.
            theirs = action.kind is ActionKind.LAUNCH or action.by_owner
            if theirs and own > Money.ZERO and own + share > limit:
                message += f"; {own} of it is {action.user}'s own: open requests of one user hold {limit} at most"
                return deny(self, "too_much_is_asked", message, own=own, **figures)
            return ask(self, self.config.asking, "over_budget", message, **figures)
        return deny(self, "over_budget", message, **figures)

    def _running(self, action: Action, facts: Facts) -> Verdict:
        """Whether what runs may go on: until the grace is over after more was spent than there was."""
        if self.config.action != "stop":
            return allow(self, "not_for_what_runs", "stops nothing that runs")
        if action.placement is None or action.placement.money not in self.config.counts:
            return allow(self, "asks_nothing", f"costs no {' or '.join(self.config.counts)}")
        limit, grace = self.config.amount, self.config.grace or _DEFAULT_GRACE
        for use in facts.budgets.get(self.name, ()):
            if not use.period_start <= facts.now < use.period_end or use.spent <= limit or use.over_since is None:
                continue
            period = period_name(self.config.stretch, self.config.timezone, use.period_start)
            all_of_it, spent = alike(limit, use.spent)
            state = f"budget {self.name} of {all_of_it} for {period} is exceeded: {spent} spent"
            figures = {
                "budget": self.name,
                "limit": limit,
                "spent": use.spent,
                "period": period,
                "over_since": use.over_since.isoformat(),
            }
            if facts.now < use.over_since + grace:
                message = f"{state}; what runs is stopped at {use.over_since + grace:%Y-%m-%d %H:%M:%S} UTC"
                return allow(self, "in_grace", message, **figures)
            return deny(self, "exceeded", f"{state}; what runs is stopped after a grace of {length(grace)}", **figures)
        return allow(self, "within_limit", f"no more than {limit} is spent")


def _period(use: BudgetUse) -> tuple[datetime, datetime]:
    return use.period_start, use.period_end


def _shares(dated: Sequence[Burn], uses: Iterable[BudgetUse]) -> list[Money]:
    """How much of what is dated falls into each of these periods."""
    return [held_in(_period(use), dated) for use in uses]


def _wanted(action: Action) -> str:
    """What is said of the amount: a job that holds some of it already does not ask for all of it."""
    return "needed" if action.own else "asked"
