"""Offers for people and plans: fill an empty store, keep local sources fresh, query the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from broker.app import runs_root
from broker.app.market.offer_rows import check_names
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, MissingExtra, UnknownName
from broker.core.job.jobs import Job
from broker.core.market.accelerators import lookup
from broker.core.market.offers import LOCAL_ENGINE, SANDBOX, Offer, OfferQuery
from broker.core.market.shares import MachineShare
from broker.core.ports import PolicySet, SharesItsMachine
from broker.economics.assumptions import DEFAULTS
from broker.economics.energy import average_watts, carbon_kg, default_pue, energy_kwh, grid_near
from broker.market.poller import PollResult, poll
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.data_cost import KeepingRate, keeping_rate

if TYPE_CHECKING:
    from broker.placement.planner import PlanInputs
    from broker.store.jobs.reader import StoreReader
    from broker.store.records import PollRun


_CLOUDS = {
    "s3": "aws",
    "s3a": "aws",
    "gs": "gcp",
    "az": "azure",
    "adl": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
# If one of these names another address, another service that speaks the same protocol is used.
_ENDPOINT_VARIABLES = {
    "aws": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
    "gcp": ("GOOGLE_BASE_URL",),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def store_location_and_rate(
    runs_url: str, location: str | None, environment: Mapping[str, str]
) -> tuple[str | None, KeepingRate | None]:
    """The location of the run store as ``provider/region``, and its storage price; each None if unknown, both on a
    local disk. ``location``: the setting ``runs_location``."""
    cloud = _CLOUDS.get(urlsplit(runs_url).scheme)
    if location is not None:
        return location, keeping_rate(location)
    if cloud is None or any(environment.get(name) for name in _ENDPOINT_VARIABLES[cloud]):
        return None, None
    region = (environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")) if cloud == "aws" else None
    return (f"{cloud}/{region}" if region else None), keeping_rate(f"{cloud}/{region or '?'}")


CARBON_RULE = "max_kg_co2e"  # the kind of guardrail that needs the emissions of placements

_LOCAL_AGE = timedelta(seconds=0.25)  # wall clock; local sources are not polled again within this time,
_REST_FACTOR = 20  # nor within this many times the duration of their last poll,
_MAX_REST = timedelta(minutes=1)  # but after this time at the latest
_SHARED_AGE = timedelta(seconds=5)  # within this time after a poll, other processes probably poll as well
_BOOK_AGE = timedelta(days=1)  # the price book changes only with a release


@contextmanager
def fresh_reading(broker: Broker, *, sandbox: bool = False) -> Iterator[StoreReader]:
    """A read of the store with fresh offers of local sources (`freshen`). If none of them is due, as in most of many
    submissions at once, this needs no other transaction."""
    with broker.store.reading() as reader:
        now = broker.clock.now()
        if is_fresh(broker, now, sandbox=sandbox) or not _due_sources(
            broker, reader.last_polls(), now, sandbox=sandbox
        ):
            yield reader
            return
    freshen(broker, sandbox=sandbox)
    with broker.store.reading() as reader:
        yield reader


def is_fresh(broker: Broker, now: datetime, *, sandbox: bool = False) -> bool:
    """Whether no local source is due, according to this process's last check."""
    return now < broker.fresh_until.get(sandbox, now)


def freshen(broker: Broker, *, sandbox: bool = False) -> list[PollResult]:
    """Poll the local sources that are due, with ``sandbox`` also the simulated market; this fills an empty store. The
    store is read only once a source may be due."""
    if is_fresh(broker, broker.clock.now(), sandbox=sandbox):
        return []
    with broker.asking_local_sources:  # one thread polls, and the others use its result
        return _poll_due_sources(broker, sandbox=sandbox)


def _poll_due_sources(broker: Broker, *, sandbox: bool) -> list[PollResult]:
    from broker.store.engine.leader import LeaderRole

    now, runs = broker.clock.now(), broker.store.last_polls()
    results: list[PollResult] = []
    shared_sources, longest_poll = [], timedelta(0)
    for name, age in _due_sources(broker, runs, now, sandbox=sandbox).items():
        if name in runs and _is_live(broker, name) and now - runs[name].finished < _SHARED_AGE * broker.clock.scale:
            shared_sources.append((name, age))
        else:
            results.append(
                poll(broker.provider(name), broker.store, broker.clock, keep_unchanged=not _is_live(broker, name))
            )
    if not shared_sources:
        return results
    # Of many processes one polls; the others use its recent result instead of writing the same.
    with broker.store.lead(LeaderRole.LOCAL) as is_leader:
        runs = broker.store.last_polls() if is_leader else runs
        for name, age in shared_sources if is_leader else ():
            began = broker.clock.now()
            if began - runs[name].finished >= age:
                results.append(poll(broker.provider(name), broker.store, broker.clock, keep_unchanged=False))
                longest_poll = max(longest_poll, broker.clock.now() - began)
    if longest_poll:  # includes the writing to the store, which the record of the poll does not
        pause = min(_REST_FACTOR * longest_poll, _MAX_REST * broker.clock.scale)
        broker.fresh_until[sandbox] = broker.clock.now() + pause
    return results


def _due_sources(broker: Broker, runs: Mapping[str, PollRun], now: datetime, *, sandbox: bool) -> dict[str, timedelta]:
    """The local sources that are due, with the age of its last poll from which each is due. ``runs``: the newest poll
    of each. If none is due, the time of the next one is remembered."""
    names = (*broker.registries.local_providers, SANDBOX) if sandbox else broker.registries.local_providers
    ages = {name: _due_age(broker, name, runs.get(name)) for name in names}
    due_sources = {name: age for name, age in ages.items() if name not in runs or now - runs[name].finished >= age}
    if not due_sources:
        broker.fresh_until[sandbox] = min((runs[name].finished + age for name, age in ages.items()), default=now)
    return due_sources


def _is_live(broker: Broker, name: str) -> bool:
    live: bool = getattr(broker.provider(name), "refresh_before_deciding", False)
    return live


def _due_age(broker: Broker, name: str, last_poll: PollRun | None) -> timedelta:
    if not _is_live(broker, name):
        return _BOOK_AGE
    age = _LOCAL_AGE * broker.clock.scale
    if last_poll is None:
        return age
    return max(age, min(_REST_FACTOR * (last_poll.finished - last_poll.started), _MAX_REST * broker.clock.scale))


def wants_sandbox(job: Job) -> bool:
    """Whether the job names the simulated provider; only then simulated offers are considered."""
    return SANDBOX in job.constraints.providers


def query_for(job: Job) -> OfferQuery:
    """The offers that a plan of this job needs from the store; the planner filters further."""
    accelerators = {m.accelerator for m in job.resources if m.accelerator}
    if None in {m.accelerator for m in job.resources} or not job.resources:
        return OfferQuery()
    return OfferQuery(accelerators=tuple(sorted(accelerators)), count=min(m.count for m in job.resources))


def market_for(
    broker: Broker,
    job: Job,
    policy: PolicySet | None = None,
    *,
    by_carbon: bool = False,
    reader: StoreReader | None = None,
) -> PlanInputs:
    """The offers that could serve the job, and the conditions of its plans.

    ``policy``: for what-if questions; default: the active set. ``reader``: read everything from this transaction, for
    which the caller has polled local sources (`fresh_reading`).
    """
    if reader is None:
        freshen(broker, sandbox=wants_sandbox(job))
        with broker.store.reading() as reader:
            return market_for(broker, job, policy, by_carbon=by_carbon, reader=reader)
    from broker.app.market.experience import (
        paces_for,  # slow to import, and listings of offers do not need them
        risks,
    )
    from broker.placement.planner import PlanInputs

    query = query_for(job)
    risk_estimates = risks(broker, query)
    offers = subtract_other_stores(broker, reader.offers(query))
    accelerators, active_policy = query.accelerators, policy or broker.policy(reader)
    coming: Sequence[tuple[Offer, datetime]] = ()
    if purchases := [
        purchase for purchase in reader.purchases() if not accelerators or purchase.quote.accelerator in accelerators
    ]:
        from broker.procurement import bought_offers  # most stores have no purchases

        now, max_wait = broker.clock.now(), active_policy.defaults.wait_for_paid
        offers = bought_offers.add_bought_offers(offers, purchases, now)
        coming = bought_offers.upcoming_offers(offers, purchases, now, max_wait) if max_wait else ()
    engine_names = {offer.engine for offer in offers if offer.engine}
    plan_conditions = conditions(broker, engine_names, active_policy, by_carbon=by_carbon)
    plan_conditions = replace(plan_conditions, capacity_order=active_policy.capacity_order(job))
    return PlanInputs(
        offers=offers,
        coming=coming,
        conditions=replace(
            plan_conditions, hazard=risk_estimates, away=risk_estimates.away, paces=paces_for(broker, job)
        ),
        left_out=reader.rejected_in_sql(query, simulated=wants_sandbox(job)),
    )


def subtract_other_stores(broker: Broker, offers: Sequence[Offer]) -> Sequence[Offer]:
    """The offers with what jobs of other stores use of this machine subtracted."""
    if not any(offer.divided for offer in offers):
        return offers
    try:
        engine = broker.engine(LOCAL_ENGINE)
    except (MissingExtra, UnknownName):
        return offers
    used_by_others = (
        engine.given_to_others(lambda: store_id(broker.store))
        if isinstance(engine, SharesItsMachine)
        else MachineShare()
    )
    return [replace(offer, left=offer.has - used_by_others) if offer.divided else offer for offer in offers]


def conditions(
    broker: Broker, engine_names: Set[str], policy: PolicySet | None = None, *, by_carbon: bool = False
) -> Conditions:
    """The planner's conditions: the defaults of the policies, and which of the engines ``engine_names`` by offers are
    installed (no others are loaded). Emissions are computed only if a policy limits them, or for ``by_carbon``."""
    active_policy = policy or broker.policy()
    defaults = active_policy.defaults
    engines: dict[str, frozenset[str]] = {}
    out_of_reach, runs = set(), runs_root.search_root(broker)
    for name in engine_names & broker.registries.engines.keys():
        try:
            engine = broker.engine(name)
        except (MissingExtra, UnknownName):
            continue
        engines[name] = engine.honours
        if engine.remote and runs.startswith("file:"):
            out_of_reach.add(name)
    location, keeping = store_location_and_rate(runs, broker.settings.runs_location, os.environ)
    return Conditions(
        engines=engines,
        store_location=location,
        keeping=keeping,
        out_of_reach=frozenset(out_of_reach),
        allow_reference_prices=defaults.allow_reference_prices,
        allow_stale_prices=defaults.allow_stale_prices,
        cpu_jobs_on_gpus=defaults.cpu_jobs_on_gpus,
        capacity_order=defaults.capacity_order,
        value_of_time=defaults.value_of_time,
        unknown_disk=defaults.unknown_disk,
        default_max_duration=defaults.max_duration,
        carbon=_carbon() if by_carbon or any(rule.kind == CARBON_RULE for rule in active_policy.rules) else None,
        by_carbon=by_carbon,
    )


def _carbon() -> Callable[[Offer], float | None]:

    return kg_per_hour


@dataclass(frozen=True, slots=True)
class OfferListing:
    """The offers that match, the number of all offers, and the time (UTC). ``total`` counts the real market, or the
    simulated one if the query names it. ``converted``: by provider, the rates of prices in another currency."""

    offers: tuple[Offer, ...]
    total: int
    now: datetime
    converted: Mapping[str, Sequence[str]] = field(default_factory=dict)


def find_offers(broker: Broker, query: OfferQuery) -> OfferListing:
    """The current offers that match, unsorted; simulated ones only if the query names their provider. Raises
    `UnknownName` for an unknown provider or region."""
    is_simulated = SANDBOX in query.providers
    freshen(broker, sandbox=is_simulated)
    matching = [o for o in broker.store.offers(query) if is_simulated or o.provider != SANDBOX]
    check_names(broker, query, matching)

    real_total = sum(broker.store.rejected_in_sql(OfferQuery(providers=(SANDBOX,))).values())
    total = broker.store.count_offers() if is_simulated else real_total
    now = broker.clock.now()
    if holdings := broker.store.holdings():
        from broker.app.assumptions import active_assumptions  # most stores have no recorded capacity
        from broker.app.market.recorded_capacity import recorded_offers

        with broker.store.reading() as reader:
            assumptions = active_assumptions(reader)
        recorded = recorded_offers(holdings, matching, now, assumptions, query.accelerators)
        recorded_matches = [recorded_offer for recorded_offer in recorded if _matches_query(query, recorded_offer)]
        matching, total = [*matching, *recorded_matches], total + len(recorded_matches)
    rates = {name: run.converted for name, run in broker.store.last_polls().items() if run.converted}
    return OfferListing(tuple(matching), total, now, rates)


def _matches_query(query: OfferQuery, offer: Offer) -> bool:
    """Whether an offer that is not in the store is of the query's providers and regions."""
    regions = not query.regions or any(fnmatchcase(offer.region, pattern) for pattern in query.regions)
    return regions and (not query.providers or offer.provider in query.providers)


def kg_per_hour(offer: Offer) -> float | None:
    """kg CO2e of an hour of one machine: all its accelerators at the target utilization of training, with the PUE and
    the carbon intensity of the grid at its location (the world average if unknown). The rest of the machine is not
    counted. 0 for machines without accelerators; None if the accelerator's power is not published."""
    if offer.accelerator is None:
        return 0.0
    return _kg_per_hour(offer.accelerator, offer.count, offer.provider, offer.region)


@lru_cache(maxsize=4096)  # a market has far fewer places and machines than offers
def _kg_per_hour(accelerator: str, count: int, provider: str, region: str) -> float | None:
    place = f"{provider}/{region}"
    try:
        board = lookup(accelerator).tdp_w
        watts = average_watts(board or 0.0, DEFAULTS.training_utilization)
    except (InvalidInput, UnknownName):
        return None
    return carbon_kg(energy_kwh(watts, 1, count, default_pue(place)), grid_near(place)[0].grams_per_kwh)
