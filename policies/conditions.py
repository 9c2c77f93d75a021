"""``when:`` of a rule: a CEL condition that selects the requests the rule applies to.

Checked when the file is loaded (`policies.cel_typecheck`) and evaluated by the CEL library, which is imported only if
some rule has a condition. A guardrail's condition that cannot be evaluated (an absent limit, say) counts as met, and a
budget's as not met: an error never opens a gate. Loading warns where that may happen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Any

from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money
from broker.core.values.units import zone
from policies.bound_rule import allow
from policies.fields import suggest_zone

# Variables of conditions. Amounts are USD, times UTC, durations hours unless the name says otherwise. `spend.asked` is
# the job's total: what it has spent, holds and requests now. Text that a job does not set is ""; numbers and times
# marked "?" may be absent: check `has(job.max_cost)` first.
ENVIRONMENT: Mapping[str, str | Mapping[str, str]] = {
    "action": "string",
    "user": "string",
    "job": {
        "name": "string", "team": "string", "project": "string", "environment": "string", "workload": "string",
        "priority": "string", "nodes": "int", "max_cost": "double?", "max_hours": "double?", "deadline": "timestamp?",
        "sensitive": "bool", "data_location": "string", "data_gb": "double?", "checkpoints": "bool", "retries": "int",
    },
    "offer": {
        "provider": "string", "region": "string", "zone": "string", "instance_type": "string", "accelerator": "string",
        "count": "int", "capacity_type": "string", "money": "string", "source": "string", "interconnect": "string",
        "price": "double", "price_per_gpu": "double?", "age_hours": "double", "reference": "bool",
        "interruptions_per_hour": "double?",
    },
    "placement": {
        "nodes": "int", "gpus": "int", "rate": "double", "expected_cost": "double", "hours": "double?",
        "finish": "timestamp?",
    },
    "spend": {
        "asked": "double", "held": "double", "spent": "double", "hours": "double", "attempts": "int",
    },
    "time": {"now": "timestamp", "hour": "int", "weekday": "string"},
}  # fmt: skip


# The aspect an approval must cover for each variable. Some variables need none: `JOB_FIELDS` are in the job file, which
# does not change; every approval limits `LIMITED` to its amount and time; `TRANSIENT` change while the request is
# pending.
_ASPECTS: Mapping[str, Aspect] = {
    "job.sensitive": Aspect.SENSITIVE_DATA,
    "job.data_location": Aspect.DATA_LOCATION,
    "offer.provider": Aspect.PROVIDER,
    "offer.region": Aspect.REGION,
    "offer.zone": Aspect.ZONE,
    "offer.instance_type": Aspect.INSTANCE_TYPE,
    "offer.accelerator": Aspect.ACCELERATOR,
    "offer.count": Aspect.GPUS_PER_MACHINE,
    "offer.capacity_type": Aspect.CAPACITY_TYPE,
    "offer.money": Aspect.MONEY,
    "offer.source": Aspect.PRICE_SOURCE,
    "offer.interconnect": Aspect.INTERCONNECT,
    "offer.price": Aspect.PRICE,
    "offer.price_per_gpu": Aspect.PRICE_PER_GPU,
    "offer.age_hours": Aspect.PRICE_DATE,
    "offer.reference": Aspect.REFERENCE_PRICE,
    "offer.interruptions_per_hour": Aspect.INTERRUPTIONS,
    "spend.attempts": Aspect.ATTEMPTS,
    "placement.nodes": Aspect.NODES,
    "placement.gpus": Aspect.GPUS,
    "placement.rate": Aspect.RATE,
    "placement.expected_cost": Aspect.EXPECTED_COST,
    "placement.hours": Aspect.EXPECTED_HOURS,
    "placement.finish": Aspect.EXPECTED_HOURS,  # a pending request delays the finish
}
# The kind of name that a variable has.
_NAME_KINDS = {
    "action": "action", "user": "user", "job.team": "team", "job.project": "project",
    "job.environment": "environment", "job.workload": "workload", "job.priority": "priority",
    "job.data_location": "location", "offer.provider": "provider", "offer.region": "region", "offer.zone": "zone",
    "offer.instance_type": "instance type", "offer.accelerator": "accelerator", "offer.capacity_type": "capacity type",
    "offer.money": "kind of money", "offer.source": "source", "offer.interconnect": "interconnect",
    "time.weekday": "weekday",
}  # fmt: skip
JOB_FIELDS = frozenset(
    {
        "user", "job.name", "job.team", "job.project", "job.environment", "job.workload", "job.priority", "job.nodes",
        "job.max_cost", "job.max_hours", "job.deadline", "job.data_gb", "job.checkpoints", "job.retries",
    }
)  # fmt: skip
FIXED_VARIABLES = JOB_FIELDS | {"job.sensitive", "job.data_location"}
"""What does not change during a job: all that a budget's condition may use."""
LIMITED = frozenset({"spend.asked", "spend.held", "spend.spent", "spend.hours"})
TRANSIENT = frozenset({"action", "time.now", "time.hour", "time.weekday"})


def variables() -> str:
    """Every variable of conditions in one line: ``user, job.name, …``."""
    groups = ENVIRONMENT.items()
    return ", ".join(
        f"{group}.{{{', '.join(fields)}}}" if isinstance(fields, Mapping) else group for group, fields in groups
    )


_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_GIGABYTE = 10**9
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, eq=False)
class Condition:
    """A checked condition. ``unasked``: optional fields it uses unguarded, and their offsets in the text. ``names``:
    what it compares with known names: the kind of name, the text, the pattern of a known name, and the offset."""

    text: str
    uses: frozenset[str]
    unasked: tuple[tuple[str, int], ...] = ()
    names: tuple[tuple[str, str, re.Pattern[str], int], ...] = ()

    def looks_at(self, action: Action) -> tuple[Fact, ...]:
        """The facts that the condition reads."""
        aspects = (_ASPECTS.get(name) for name in sorted(self.uses))
        return read_facts(action, *dict.fromkeys(aspect for aspect in aspects if aspect is not None))

    @property
    def changing(self) -> list[str]:
        """The variables and functions it uses whose values may change during a job."""
        functions = {name for name in ("hour_in", "weekday_in") if f"{name}(" in self.text}
        return sorted((self.uses | functions) - FIXED_VARIABLES)

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in self.uses)

    def judge(self, rule: Rule, action: Action, facts: Facts, seen: Variables) -> Verdict:
        """The rule's verdict if the condition is met or cannot be evaluated, else an allowance."""
        scope = getattr(rule, "scope", None)
        if scope is not None and not scope.covers(action):
            return rule.judge(action, facts)
        if action.hold is None and action.kind is not ActionKind.CONTINUE and "spend.asked" in self.uses:
            return allow(rule, "no_amount_yet", "its condition depends on the amount, which is not known yet")
        try:
            is_met = self._program.execute(seen.context)
        except Exception as error:  # noqa: BLE001 - whatever a library raises, the gate stays shut
            return self._as_if_met(rule.judge(action, facts), _reason(error))
        if is_met is True:
            return rule.judge(action, facts)
        return allow(rule, "condition_not_met", "its condition is not met")

    def _as_if_met(self, verdict: Verdict, reason: str) -> Verdict:
        if verdict.answer is Answer.ALLOW:
            return verdict
        message = f"{verdict.message}; its condition cannot be evaluated, so it counts as met: {reason}"
        return replace(verdict, message=message, figures={**verdict.figures, "when": self.text})

    def holds(self, seen: Variables) -> bool:
        """Whether the condition is met; False if it cannot be evaluated. For budgets, which then grant nothing."""
        try:
            return self._program.execute(seen.context) is True
        except Exception:  # noqa: BLE001 - what cannot be evaluated grants nothing
            return False

    @cached_property
    def _program(self) -> Any:
        return _compile(self.text)


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises `policies.cel_typecheck.ExpressionError` with the offset of the error."""
    from policies import cel_typecheck  # imported only for files with conditions

    checked = cel_typecheck.check(text, ENVIRONMENT)
    for function, literal, at in checked.literals:
        _try_out(function, literal, at)
    try:
        _compile(text)
    except ValueError as error:
        raise cel_typecheck.ExpressionError(0, f"cannot be parsed: {str(error).splitlines()[0]}") from error
    names = [
        (_NAME_KINDS[variable], name, _pattern_of(sign, name), at)
        for variable, sign, literal, at in checked.names
        if variable in _NAME_KINDS
        for name in (_compile(literal).execute({}),)
    ]
    return Condition(text, checked.uses, checked.unasked, tuple(names))


def _pattern_of(sign: str, text: str) -> re.Pattern[str]:
    """The pattern of the names for which a comparison with that text is true (of ``!=``: false)."""
    if sign == "matches":
        try:
            return re.compile(f".*(?:{text}).*")
        except re.error:  # CEL's syntax differs a little
            return re.compile(".*")
    form = {"startsWith": "{}.*", "endsWith": ".*{}", "contains": ".*{}.*"}.get(sign, "{}")
    return re.compile(form.format(re.escape(text)))


def _try_out(function: str, literal: str, at: int) -> None:
    """Call the function with its literal when the file is loaded, so that a bad literal does not fail at evaluation."""
    from policies.cel_typecheck import ExpressionError

    expected = {
        "matches": "a regular expression",
        "timestamp": "a time such as 2026-12-01T08:00:00Z",
        "duration": "a duration such as 90s, 30m or 1h30m",
        "hour_in": "a time zone such as Europe/Berlin",
        "weekday_in": "a time zone such as Europe/Berlin",
    }.get(function)
    if expected is None:
        return
    call = f'"".matches({literal})' if function == "matches" else f"{function}({literal})"
    try:
        if function in ("hour_in", "weekday_in"):
            zone(_compile(literal).execute({}))
        else:
            _compile(call).execute({})
    except Exception as error:  # whatever the library raises, the literal is the cause
        hint = suggest_zone(literal.strip("\"'")) if "time zone" in expected else ""
        raise ExpressionError(at, f"expected {expected}; got {literal}{hint}") from error


class Variables:
    """The variables of one judgment, computed when the first condition is evaluated."""

    def __init__(self, action: Action, facts: Facts, groups: frozenset[str]) -> None:
        self._action, self._facts, self._groups = action, facts, groups

    @cached_property
    def context(self) -> Any:
        makers = {"job": _job, "offer": _offer, "placement": _placement, "spend": _spend, "time": _time}
        values: dict[str, Any] = {"action": self._action.kind.value, "user": self._action.user}
        for name in self._groups & makers.keys():
            fields = makers[name](self._action, self._facts)
            values[name] = {key: value for key, value in fields.items() if value is not None}
        return _context(values, self._facts.now)


@cache
def _compile(text: str) -> Any:
    from cel import compile as compile_cel

    return compile_cel(text)


def _context(values: Mapping[str, Any], now: datetime) -> Any:
    from cel import Context

    def local(timezone: str) -> datetime:
        return now.astimezone(zone(timezone))

    return Context(
        variables=dict(values),
        functions={
            "hour_in": lambda timezone: local(timezone).hour,
            "weekday_in": lambda timezone: _WEEKDAYS[local(timezone).weekday()],
        },
    )


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is absent (check has() first)"
    # Types were checked at loading: only 0.0 / 0.0 is left, which compares with nothing.
    if isinstance(error, ZeroDivisionError | TypeError):
        return "it divides by zero"
    return str(error).splitlines()[0]


def _job(action: Action, facts: Facts) -> dict[str, Any]:
    job = action.job
    return {
        "name": job.name,
        "team": job.team or "",
        "project": job.project or "",
        "environment": job.environment or "",
        "workload": job.workload.value,
        "priority": job.priority.value,
        "nodes": job.num_nodes,
        "max_cost": _usd(job.max_cost),
        "max_hours": None if job.max_duration is None else job.max_duration / _HOUR,
        "deadline": job.deadline_at(action.submitted_at or facts.now),
        "sensitive": job.data.sensitive,
        "data_location": job.data.location or "",
        "data_gb": None if job.data.size is None else job.data.size / _GIGABYTE,
        "checkpoints": job.checkpoint.every is not None,
        "retries": job.retry.failures,
    }


def _offer(action: Action, facts: Facts) -> dict[str, Any]:
    if action.placement is None:
        return {}
    offer = action.placement.offer
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone or "",
        "instance_type": offer.instance_type,
        "accelerator": offer.accelerator or "",
        "count": offer.count,
        "capacity_type": offer.capacity_type.value,
        "money": offer.money.value,
        "source": offer.source,
        "interconnect": offer.interconnect.value if offer.interconnect else "",
        "price": _usd(offer.price),
        "price_per_gpu": _usd(offer.price_per_gpu),
        "age_hours": (facts.now - offer.as_of) / _HOUR,
        "reference": offer.reference,
        "interruptions_per_hour": offer.interruption_rate,
    }


def _placement(action: Action, facts: Facts) -> dict[str, Any]:
    placement = action.placement
    if placement is None:
        return {}
    return {
        "nodes": placement.nodes,
        "gpus": placement.gpus,
        "rate": _usd(placement.rate),
        "expected_cost": _usd(placement.expected_cost),
        "hours": None if placement.duration is None else placement.duration / _HOUR,
        "finish": placement.finish,
    }


def _spend(action: Action, facts: Facts) -> dict[str, Any]:
    return {
        "asked": _usd(_sum([*(action.hold or {}).values(), action.held, action.spent])),
        "held": _usd(action.held),
        "spent": _usd(action.spent),
        "hours": action.elapsed / _HOUR,
        "attempts": action.attempts,
    }


def _time(action: Action, facts: Facts) -> dict[str, Any]:
    return {"now": facts.now, "hour": facts.now.hour, "weekday": _WEEKDAYS[facts.now.weekday()]}


def _sum(amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money.ZERO)


def _usd(amount: Money | None) -> float | None:
    return None if amount is None else amount.micros / 1_000_000
