"""Scenarios of the sandbox: the simulated capacity, its prices, and the behavior of its markets.

A scenario is a TOML file. Two come with gpubroker: ``default`` (a broad market for trying things out) and ``demo``
(a small one in which a two-hour spot job always meets an interruption). Durations in the file carry their unit in the
key; prices are decimal strings in USD per hour for the whole machine. Every region, zone and instance type is named
``sandbox-…``, so that they are not mistaken for real ones.
"""

import tomllib
from datetime import timedelta
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from broker.core.errors import InvalidInput, Problem
from broker.core.market.offers import SANDBOX, Billing, Interconnect
from broker.core.values.money import Money

BUILT_IN = ("default", "demo")


def _check_sandbox_name(name: str) -> str:
    if not name.startswith(f"{SANDBOX}-"):
        raise ValueError(f"expected a name that starts with '{SANDBOX}-', so that nobody mistakes it for a real one")
    return name


def _check_positive(price: Money) -> Money:
    if price.micros <= 0:
        raise ValueError("expected a price above 0")
    return price


def _check_ascending(span: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= span[0] <= span[1]:
        raise ValueError("expected [least, most], both 0 or more")
    return span


SandboxName = Annotated[str, AfterValidator(_check_sandbox_name)]
Price = Annotated[Money, AfterValidator(_check_positive)]
Span = Annotated[tuple[float, float], AfterValidator(_check_ascending)]


class _ScenarioTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Behaviour(_ScenarioTable):
    """How the pools of one market behave. Ranges are ``[least, most]``; each pool or machine draws its own value.

    Prices: a pool's level is its list price times a factor from ``level``, around which the price moves by up to
    ``swing`` (0.1 = 10 %), changing every ``step_minutes``. Capacity: time is cut into cycles of ``cycle_hours``; in
    each, with ``outage_chance``, the pool sells out ``outage_after_hours`` after the cycle's start, for
    ``outage_hours``. Pools start their first cycle up to ``stagger_hours`` before the scenario's start. A sell-out of
    spot takes every machine of the pool. Fates: a spot machine is also taken on its own, at ``hazard_per_hour``, or,
    where ``life_hours`` is given, at an age within that range. ``machines``: their number unless sold out.
    """

    level: Span = (1.0, 1.0)
    swing: float = Field(default=0.0, ge=0, lt=1)
    step_minutes: float = Field(default=10.0, gt=0)
    cycle_hours: float = Field(default=24.0, gt=0)
    stagger_hours: float = Field(default=0.0, ge=0)
    outage_chance: float = Field(default=0.0, ge=0, le=1)
    outage_after_hours: Span = (0.0, 0.0)
    outage_hours: Span = (0.0, 0.0)
    hazard_per_hour: float = Field(default=0.0, ge=0)
    life_hours: Span | None = None
    machines: tuple[int, int] = (4, 16)

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if self.outage_after_hours[1] + self.outage_hours[1] > self.cycle_hours:
            raise ValueError("an outage must end within its cycle: outage_after_hours + outage_hours <= cycle_hours")
        if not 1 <= self.machines[0] <= self.machines[1]:
            raise ValueError("expected machines as [least, most], both 1 or more")
        return self

    @property
    def interruptions_per_hour(self) -> float:
        """Expected interruptions per hour of one spot machine, as rough as the figures that providers publish."""
        own_rate = 2 / sum(self.life_hours) if self.life_hours and sum(self.life_hours) else self.hazard_per_hour
        return max(own_rate, self.outage_chance / self.cycle_hours)


class MachineKind(_ScenarioTable):
    """One simulated instance type and its list prices. ``reserved`` maps a term in months to the hourly price."""

    instance_type: SandboxName
    accelerator: str | None = None
    count: int = Field(default=0, ge=0)
    cpus: float = Field(gt=0)
    memory_gib: float = Field(gt=0)
    interconnect: Interconnect | None = None
    on_demand: Price
    spot: Price | None = None
    reserved: dict[int, Price] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if (self.accelerator is None) != (self.count == 0):
            raise ValueError("expected both accelerator and count, or neither for a CPU machine")
        return self


class Zone(_ScenarioTable):
    """One simulated zone: its price factor, its instance types (patterns), and the behavior of its markets."""

    name: SandboxName
    region: SandboxName
    price_factor: float = Field(default=1.0, gt=0)
    machines: tuple[str, ...] = ("*",)
    spot: str
    on_demand: str

    def has(self, kind: MachineKind) -> bool:
        return any(fnmatchcase(kind.instance_type, pattern) for pattern in self.machines)


class FaultTable(_ScenarioTable):
    """Faults a scenario starts with; see `broker.engines.sandbox.market.Faults`."""

    sold_out: tuple[str, ...] = ()
    failing_launches: tuple[int, ...] = ()
    lost_machines: tuple[str, ...] = ()


class Scenario(_ScenarioTable):
    """A whole simulated market. Times are in the broker's clock, which may run faster than wall time."""

    name: str
    boot_seconds: Span = (60.0, 180.0)
    notice_seconds: float = Field(default=120.0, ge=0)
    max_age_minutes: float = Field(default=60.0, gt=0)
    minimum_seconds: float = Field(default=60.0, ge=0)
    granularity_seconds: float = Field(default=1.0, gt=0)
    behaviours: dict[str, Behaviour]
    zones: tuple[Zone, ...] = Field(min_length=1)
    machines: tuple[MachineKind, ...] = Field(min_length=1)
    faults: FaultTable = FaultTable()

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        for zone in self.zones:
            for behaviour in (zone.spot, zone.on_demand):
                if behaviour not in self.behaviours:
                    raise ValueError(f"zone {zone.name} names the behavior {behaviour!r}, which is not defined")
        for subject, names in (
            ("zone", [zone.name for zone in self.zones]),
            ("instance type", [kind.instance_type for kind in self.machines]),
        ):
            duplicates = sorted({name for name in names if names.count(name) > 1})
            if duplicates:
                raise ValueError(f"{subject} {duplicates[0]} is defined twice")
        return self

    @property
    def notice(self) -> timedelta:
        """The time from a machine's notice to its end."""
        return timedelta(seconds=self.notice_seconds)

    @property
    def max_age(self) -> timedelta:
        """The age from which a price of this market is stale."""
        return timedelta(minutes=self.max_age_minutes)

    @property
    def billing(self) -> Billing:
        return Billing(timedelta(seconds=self.minimum_seconds), timedelta(seconds=self.granularity_seconds))


def parse_scenario(text: str, where: str) -> Scenario:
    """A scenario from TOML. Raises `InvalidInput` with ``where`` and every problem found."""
    try:
        return Scenario.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"not a TOML file: {error}", where=where) from error
    except ValidationError as error:
        problems = [
            Problem(0, 0, ".".join(str(part) for part in issue["loc"]), issue["msg"].removeprefix("Value error, "))
            for issue in error.errors(include_url=False, include_context=False)
        ]
        raise InvalidInput(
            f"not a sandbox scenario: {'; '.join(str(problem) for problem in problems)}", where=where, problems=problems
        ) from error


def load_scenario(name: str) -> Scenario:
    """A built-in scenario by name (``default``, ``demo``), or one from the file at that path.

    Raises `InvalidInput` for a file that cannot be read or is not a scenario.
    """
    if name in BUILT_IN:
        return parse_scenario(
            files("broker.engines.sandbox").joinpath(f"scenario_{name}.toml").read_text("utf-8"), f"scenario {name}"
        )
    try:
        text = Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"cannot read the sandbox scenario: {error}",
            where=name,
            hint=f"give a TOML file, or one of the built-in scenarios: {', '.join(BUILT_IN)}",
        ) from error
    return parse_scenario(text, name)
