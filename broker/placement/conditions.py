"""What holds around a job when a plan is made: the policy's switches, the engines installed, and our assumptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from broker.core.market.offers import Offer
from broker.core.values.money import Money
from broker.placement.pricing.pace import Paces
from broker.placement.pricing.priors import interruption_rate, time_to_return
from broker.placement.pricing.storage_cost import KeepingRate


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything the planner must know beside job, offers and time.

    From the active policies (`broker.core.ports.PolicyDefaults`): ``allow_reference_prices``, ``allow_stale_prices``,
    ``cpu_jobs_on_gpus``, ``capacity_order`` (capacity types, first choice first; the rest follow),
    ``default_max_duration``, which holds where a job names none, and likewise ``value_of_time``: USD that an hour
    until the finish is worth, for jobs without a deadline.

    From the installation: ``engines`` maps the name of each installed engine to what it honours (`Job.needs`);
    ``out_of_reach`` are those whose machines cannot reach the run folders, which lie on this machine's disk;
    ``store_location`` is where run folders and checkpoints lie, as ``provider/region``, None when that is not known
    or this machine's disk; ``keeping`` is what that store charges for keeping them, None likewise; ``sandbox`` lets
    sandbox offers in without being asked for by name (the demo's own store).

    ``carbon``: kg CO2e of an hour of one machine of an offer, None where it is not known; looked at only where the
    policies cap it or ``by_carbon`` ranks by it: expected emissions first (of a useful hour, where the work is not
    known), cost between equals, what is not known last.

    ``hazard``: interruptions per hour of one machine of an offer, by what was seen of it
    (`broker.placement.pricing.hazard`) or by the priors. ``away``: hours until lost capacity returns, likewise.

    ``paces``: how fast earlier attempts of the job, or of one of its name and team, went on which machines.

    Assumptions, to be replaced by measurements where there are any: ``start_up`` is the billed time from launch to
    the first useful step on rented capacity (boot, image, set-up); owned machines are there already. ``restart`` is
    the time to load a checkpoint when the job does not say. ``write_bytes_per_second`` is how fast a checkpoint is
    written while the program waits, and ``write`` how long that takes when the job does not give its size. Studies of
    spot training reckon 0.02-0.5 h for start-up and restore together (Wu et al., "Can't Be Late", NSDI 2024).
    """

    engines: Mapping[str, frozenset[str]] = field(default_factory=dict)
    out_of_reach: frozenset[str] = frozenset()
    allow_reference_prices: bool = False
    allow_stale_prices: bool = False
    cpu_jobs_on_gpus: bool = False
    capacity_order: tuple[str, ...] = ()
    default_max_duration: timedelta = timedelta(hours=24)
    value_of_time: Money | None = None
    store_location: str | None = None
    keeping: KeepingRate | None = None
    sandbox: bool = False
    carbon: Callable[[Offer], float | None] | None = None
    by_carbon: bool = False
    hazard: Callable[[Offer], float] = interruption_rate
    away: Callable[[Offer], float] = time_to_return
    paces: Paces = field(default_factory=dict)
    start_up: timedelta = timedelta(minutes=5)
    restart: timedelta = timedelta(minutes=2)
    write_bytes_per_second: float = 500e6
    write: timedelta = timedelta(seconds=30)
