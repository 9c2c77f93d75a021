"""The conditions of a plan: policy switches, installed engines, and assumptions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from broker.core.market.offers import Offer
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import KeepingRate
from broker.placement.pricing.hazard import interruption_rate, time_to_return
from broker.placement.pricing.pace import Paces


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything the planner needs besides job, offers and time.

    From the active policies (`broker.core.ports.PolicyDefaults`): ``allow_reference_prices``, ``allow_stale_prices``,
    ``cpu_jobs_on_gpus``, ``capacity_order`` (capacity types by preference; unnamed ones follow), and for jobs without
    their own: ``default_max_duration`` and ``value_of_time`` (USD per hour until the finish, jobs without a deadline);
    ``unknown_disk``.

    From the installation: ``engines``: installed engines and the job needs each supports (`Job.needs`);
    ``out_of_reach``: engines whose machines cannot reach the run folders on this machine's disk; ``store_location``:
    the place of run folders and checkpoints as ``provider/region``, None if unknown or this machine's disk;
    ``keeping``: storage rate there, None likewise; ``sandbox``: accept sandbox offers that the job does not name (the
    demo's store).

    ``carbon``: kg CO2e per hour of one machine of an offer, None if unknown; used only for a policy cap or
    ``by_carbon``, which ranks by expected emissions (per useful hour if the work is unknown), then cost, unknown
    emissions last.

    ``hazard``: interruptions per hour of one machine, estimated (`broker.placement.pricing.hazard`) or from priors.
    ``away``: hours until lost capacity returns, likewise.

    ``paces``: speed of earlier attempts of this job, or of jobs with its name and team, by machine.

    Assumptions, replaced by measurements if there are any: ``start_up``: billed time from launch to the first useful
    step on rented capacity (boot, image, set-up); zero on owned machines. ``restart``: time to load a checkpoint if the
    job gives none. ``write_bytes_per_second``: checkpoint write rate of a machine while the program waits; ``write``:
    the write time if the size is unknown. Studies of spot training assume 0.02-0.5 h for start-up and restore together
    (Wu et al., "Can't Be Late", NSDI 2024).
    """

    engines: Mapping[str, frozenset[str]] = field(default_factory=dict)
    out_of_reach: frozenset[str] = frozenset()
    allow_reference_prices: bool = False
    allow_stale_prices: bool = False
    cpu_jobs_on_gpus: bool = False
    capacity_order: tuple[str, ...] = ()
    default_max_duration: timedelta = timedelta(hours=24)
    value_of_time: Money | None = None
    unknown_disk: Money | None = None
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
