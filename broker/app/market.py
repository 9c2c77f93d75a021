"""Offers for people and plans: filling an empty store, keeping local sources fresh, asking the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from broker.app.wiring import Broker
from broker.core.errors import MissingExtra, UnknownName
from broker.core.jobs import Job
from broker.core.offers import Offer, OfferQuery
from broker.core.reasons import Reason
from broker.core.sandbox_scenario import PROVIDER as SANDBOX
from broker.launch.placing import Market
from broker.market.poller import PollResult, poll
from broker.placement.conditions import Conditions

# Local sources cost nothing to ask; asking them again within this time would bring the same answer.
_LOCAL_AGE = timedelta(seconds=2)
# Except the price book, which changes only with a release: once a day will do.
_BOOK_AGE = timedelta(days=1)


def freshen(broker: Broker, *, sandbox: bool = False) -> list[PollResult]:
    """Poll the local sources that are due; with ``sandbox`` its market, too. So an empty store fills itself."""
    now = broker.clock.now()
    last = {name: run.finished for name, run in broker.store.last_polls().items()}
    names = (*broker.registries.local_providers, SANDBOX) if sandbox else broker.registries.local_providers
    done = []
    for name in names:
        provider = broker.provider(name)
        live = getattr(provider, "refresh_before_deciding", False)
        age = _LOCAL_AGE * broker.clock.scale if live else _BOOK_AGE
        if name not in last or now - last[name] >= age:
            done.append(poll(provider, broker.store, broker.clock))
    return done


def wants_sandbox(job: Job) -> bool:
    """Simulated capacity takes part only when the job names it."""
    return SANDBOX in job.constraints.providers


def query_for(job: Job) -> OfferQuery:
    """What the store needs to load for a plan of this job; the planner judges the rest."""
    accelerators = {m.accelerator for m in job.resources if m.accelerator}
    if None in {m.accelerator for m in job.resources} or not job.resources:
        return OfferQuery()
    return OfferQuery(accelerators=tuple(sorted(accelerators)))


def market_for(broker: Broker, job: Job) -> Market:
    """Fresh local offers, the stored ones that could serve the job, and the conditions of its plans."""
    freshen(broker, sandbox=wants_sandbox(job))
    query = query_for(job)
    return Market(
        offers=broker.store.offers(query),
        conditions=conditions(broker),
        left_out=broker.store.rejected_in_sql(query),
    )


def conditions(broker: Broker) -> Conditions:
    """The planner's conditions: what the policies switch, which engines are installed."""
    defaults = broker.policy().defaults
    engines: dict[str, frozenset[str]] = {}
    for name in broker.registries.engines:
        try:
            engines[name] = broker.engine(name).honours
        except (MissingExtra, UnknownName):
            continue
    return Conditions(
        engines=engines,
        allow_reference_prices=defaults.allow_reference_prices,
        capacity_order=defaults.capacity_order,
        default_max_duration=defaults.max_duration,
    )


@dataclass(frozen=True, slots=True)
class Listing:
    """Offers shown, and how many there are in all."""

    offers: tuple[Offer, ...]
    total: int


def listing(broker: Broker, query: OfferQuery, *, sandbox: bool = False) -> Listing:
    """The current offers that match, cheapest per accelerator first; offers without a price last."""
    freshen(broker, sandbox=sandbox)
    found = [o for o in broker.store.offers(query) if sandbox or o.provider != SANDBOX]

    def rank(offer: Offer) -> tuple[bool, int, str]:
        price = offer.price_per_gpu or offer.price
        return price is None, price.micros if price else 0, offer.id

    return Listing(tuple(sorted(found, key=rank)), broker.store.count_offers())


def reasons_left_out(market: Market) -> dict[Reason, int]:
    """What the store's own filter turned down, by reason."""
    return dict(market.left_out)
