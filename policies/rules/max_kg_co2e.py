"""Limits a job's emissions over all attempts."""

import math
import re
from datetime import timedelta
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from broker.core.market.offers import MoneyKind
from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from policies.bound_rule import BoundRule, allow, deny, duration_text, guardrail
from policies.fields import PolicyValue

_MASS = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(kg|t)", re.ASCII)
_EXPECTED = "expected kilograms of CO2e above zero, such as 50, 50kg or 1.2t"
_MAX_KG = 1e9
_MINUTE = timedelta(minutes=1)


def parse_kg(value: object) -> float:
    """``50``, ``"50kg"``, ``"1.2t"`` in kg. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        kg = float(value)
    elif isinstance(value, str) and (match := _MASS.fullmatch(value.strip())):
        kg = float(match[1]) * (1000 if match[2] == "t" else 1)
    else:
        raise ValueError(f"{_EXPECTED}; got {str(value)[:40]!r}")
    if not (math.isfinite(kg) and 0 < kg <= _MAX_KG):
        raise ValueError(f"{_EXPECTED}; got {str(value)[:40]!r}")
    return kg


Kilograms = Annotated[
    float,
    PlainValidator(parse_kg),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["50kg"]}]}),
]


class Emissions(PolicyValue[Kilograms]):
    """Maximum emissions of one job in kg CO2e: the GPUs' electricity, with the building's overhead, times the grid
    intensity of the place (world average if the place is unknown).
    """


@guardrail("max_kg_co2e")
class MaxKgCo2e(BoundRule[Emissions]):
    """Denies a placement where the job would emit more: emissions so far plus the expected ones (for all funded time if
    the work is unknown). A running job stops at the limit. Simulated machines emit nothing.
    """

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or not placement.gpus or placement.money is MoneyKind.SANDBOX:
            return allow(self, "no_gpus", "uses no GPU")
        limit, rate = self.config.root, placement.kg_co2e_per_hour
        if rate is None:
            if action.kind is ActionKind.CONTINUE:
                return allow(self, "not_known", "its emissions were not recorded at its start")
            return deny(
                self,
                "emissions_unknown",
                f"emissions of {placement.offer.accelerator} are unknown; the limit is {limit:g} kg CO2e per job",
                limit=f"{limit:g}",
            )
        total = _total(action)
        if total is None:
            return allow(self, "no_time_yet", "applies once the duration is known")
        if total <= limit:
            return allow(self, "within_limit", f"at most {limit:g} kg CO2e per job")
        hint, figures = _alternatives(action, limit, rate, total)
        verb = "has emitted" if action.kind is ActionKind.CONTINUE else "would emit"
        amount = f"{total:.4g}" if total < 1e6 else f"{total:.0f}"
        return deny(
            self,
            "emits_too_much",
            f"the job {verb} {amount} kg CO2e at {placement.offer.location}; the limit is {limit:g} kg per job{hint}",
            kg_co2e=amount,
            limit=f"{limit:g}",
            **figures,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        total = _total(action)
        if total is None:  # total unknown: the approval covers this machine
            return read_facts(action, Aspect.PROVIDER, Aspect.REGION, Aspect.ACCELERATOR)
        return (Fact(aspect=Aspect.EMISSIONS, value=total),)


def _alternatives(action: Action, limit: float, rate: float, total: float) -> tuple[str, dict[str, object]]:
    """The requests allowed for a job that emits too much, as the end of a sentence and as figures: less time on
    the placement, to the minute, or a cleaner place for the same time."""
    if action.kind is ActionKind.CONTINUE:
        return "", {}
    longest = (timedelta(hours=limit / rate) - action.elapsed) // _MINUTE * _MINUTE
    if _emissions(rate, action.elapsed + longest) > limit:  # by the last digit of a float
        longest -= _MINUTE
    cleaner = _rounded_down(rate * limit / total)
    time_text = f"at most {duration_text(longest)} there, or " if longest > timedelta(0) else ""
    figures: dict[str, object] = {"longest": duration_text(longest)} if time_text else {}
    return f"; allowed: {time_text}at most {cleaner:g} kg an hour", figures | {"kg_per_hour": f"{cleaner:.17g}"}


def _rounded_down(rate: float) -> float:
    """The rate rounded down to four digits; a rate of exactly four digits to the next lower one."""
    step = 10.0 ** (math.floor(math.log10(rate)) - 3)
    return math.floor(rate / step * (1 - 1e-12)) * step


def _total(action: Action) -> float | None:
    """Total emissions of the job in kg CO2e; None if unknown."""
    rate = action.placement.kg_co2e_per_hour if action.placement else None
    ahead = timedelta(0) if action.kind is ActionKind.CONTINUE else _ahead(action)
    if rate is None or ahead is None:
        return None
    return _emissions(rate, action.elapsed + ahead)


def _emissions(rate: float, time: timedelta) -> float:
    return rate * (time / timedelta(hours=1))


def _ahead(action: Action) -> timedelta | None:
    """The remaining time on the placement."""
    if action.placement is not None and action.placement.duration is not None:
        return action.placement.duration
    if action.window is not None:
        return action.window[1] - action.window[0]
    return action.job.max_duration
