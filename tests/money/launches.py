"""The checks of every launch when the engine is called: the rules in force must have judged it at that time, and no
launch may run that they deny or nobody approved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.events.events import ApprovalGiven
from broker.core.market.offers import MoneyKind, Offer
from broker.core.policy.facts import Aspect
from broker.core.policy.policy import Answer
from broker.core.ports import Launch
from broker.core.values.money import Money
from tests.money.moves import ExpectedPolicy

if TYPE_CHECKING:
    from tests.money.world import MoneyWorld

LATELY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement by the policies. ``at``: true time (UTC)."""

    at: datetime
    version: str
    job: str
    pool: str
    price: Money | None
    answer: Answer


def objections(world: MoneyWorld, launch: Launch) -> Iterator[tuple[str, str]]:
    """The parts of the promise that this launch breaks, each with a sentence."""
    offer, terms = launch.placement.offer, world.terms
    yield from _not_judged(world, launch)
    if offer.money is MoneyKind.CASH and (terms is None or not terms.amounts):
        yield "granted", f"{launch.key} costs cash, and no budget grants any"
    if terms is None:
        return
    if terms.frozen and terms.frozen[0] <= world.clock.now() < terms.frozen[1]:
        yield "frozen", f"{launch.key} is launched during a freeze"
    per_gpu = offer.price_per_gpu or Money.ZERO
    for rule, said in _against(offer, per_gpu, terms):
        if said.startswith("deny"):
            yield "denied", f"{launch.key} runs in {offer.pool} at {per_gpu} against `{rule}: {said}`"
        elif not _approved(world, launch, rule, offer, per_gpu):
            known = world.approved.get(launch.job.name, ())
            yield "approved", f"{launch.key} runs in {offer.pool} at {per_gpu}; approved for `{rule}`: {known}"


def _not_judged(world: MoneyWorld, launch: Launch) -> Iterator[tuple[str, str]]:
    offer, now, version = launch.placement.offer, world.clock.true, world.broker.policy().version
    lately = [
        one for one in world.judged if one.job == launch.job.name and one.pool == offer.pool and now - one.at <= LATELY
    ]
    allowed = [one for one in lately if one.answer is Answer.ALLOW]
    if not any(one.version == version for one in allowed):
        yield (
            "judged",
            f"{launch.key} is launched in {offer.pool}; the rules in force did not allow that lately: {lately}",
        )
    elif not any(one.price == offer.price for one in allowed):
        yield "judged", f"{launch.key} is launched at {offer.price}, a price that nobody judged lately"


def _against(offer: Offer, per_gpu: Money, terms: ExpectedPolicy) -> Iterator[tuple[str, str]]:
    """The rules that object to it, according to the policy."""
    if terms.max_price and per_gpu > Money.usd(terms.max_price.split()[1].lstrip("$")):
        yield "price", terms.max_price
    if terms.places and offer.provider == terms.places.split()[1]:
        yield "places", terms.places


def _approved(world: MoneyWorld, launch: Launch, rule: str, offer: Offer, per_gpu: Money) -> bool:
    """Whether a person approved what the rule judges: a provider, or also a price; in person, or by a
    standing grant.
    """
    known = [*world.approved.get(launch.job.name, ()), *_through_standing(world, launch)]
    return any(
        by == rule and provider == offer.provider and (rule != "price" or price >= per_gpu)
        for by, provider, price in known
    )


def _through_standing(world: MoneyWorld, launch: Launch) -> Iterator[tuple[str, str, Money]]:
    """Rule, provider and price per GPU of everything that standing grants allow for this job."""
    with world.store.reading() as look:
        bodies = [event.body for event in look.events(launch.key.rpartition("-")[0])]
    for body in bodies:
        if isinstance(body, ApprovalGiven) and body.standing is not None:
            for rule, facts in (body.facts or {}).items():
                values = {fact.aspect: fact.value for fact in facts}
                price = values.get(Aspect.PRICE_PER_GPU)
                micros = int(price) if isinstance(price, int | float) else 0
                yield rule, str(values.get(Aspect.PROVIDER)), Money(micros)
