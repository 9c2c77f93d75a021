"""Bought machines for other teams: who sees them at which price, and who has to leave them when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.events import Event
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import QueueTurn
from broker.core.job.file import parse_job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import LendingTerms
from broker.core.purchases.purchases import Purchase
from broker.core.values.money import Money
from broker.ledger.entries import Account, faults
from broker.ledger.lending import credit_for, is_credit
from broker.ledger.meter import CostStretch
from broker.procurement.lending import as_seen_by, claimed, is_recalled
from broker.procurement.using import leave_at, orders_of
from broker.reconciler.admission.records import launch_request
from tests.core.purchases.test_purchase_steps import INTENT, PAID, QUOTE, bought
from tests.procurement.test_using import DURING, held, only

AT = [LendingTerms("vision", ("nlp", "web-*"), price_per_gpu_hour=Money.usd("1.50"))]
VALUE = QUOTE.per_machine_hour
_FREE = Money.ZERO, Money.ZERO


def seen(team: str | None, terms: list[LendingTerms] = AT, *jobs: JobView, purchase: Purchase | None = None) -> Offer:
    mine = purchase or held()
    [offer] = as_seen_by([only(mine)], [mine], team, terms, jobs, DURING)
    return offer


def job(id: str, team: str, offer: Offer | None = None, *, minute: int = 0, waits_for: str = "") -> JobView:
    """A job of one machine: on that offer, or waiting for that pool."""
    at = DURING + timedelta(minutes=minute)
    text = f"name: {id}\nteam: {team}\nrun: x\nresources: {{accelerators: 'H100:8'}}\n"
    submitted = ev.Submitted(job=parse_job(text, file="job.yaml", now=at), user="ann", max_duration_seconds=3600)
    view = advance(None, Event(id, 1, at, None, submitted))
    if offer is not None:
        return advance(
            view, Event(id, 2, at, 1, launch_request(id, 1, Placement(offer, 1, *_FREE, (), None, None, 1.0, 1.0, 0.0)))
        )
    return advance(view, Event(id, 2, at, None, ev.NothingFeasible(reason=QueueTurn(pool=waits_for))))


def test_a_borrower_pays_the_internal_price_and_the_owner_nothing_more() -> None:
    assert QUOTE.machines == 2
    assert seen("vision") == only(held()), "its own"
    lent = seen("nlp")
    assert (lent.price, lent.money, lent.amortised, lent.slots) == (Money.usd(12), MoneyKind.CASH, None, 2)
    assert (lent.lent_from, lent.pool, lent.capacity_type) == (held().id, only(held()).pool, CapacityType.RESERVED)
    assert lent.availability is Availability.AVAILABLE
    assert lent.engine == "skypilot"
    assert seen("web-2").price == Money.usd(12)
    assert orders_of(lent, [held()], DURING) == (PAID.id,), "it is launched inside the reservation"
    assert leave_at(lent, [held()], DURING) == leave_at(only(held()), [held()], DURING)


def test_a_share_is_of_what_an_hour_cost() -> None:
    assert seen("nlp", [LendingTerms("vision", ("*",), share=12.345)]).price == VALUE.share(12_345, 100_000)
    assert seen("nlp", [LendingTerms("vision", ("*",), share=100.0)]).price == VALUE
    tiny = held(QUOTE.model_copy(update={"total": Money(3)}))
    assert seen("nlp", [LendingTerms("vision", ("*",), share=1.0)], purchase=tiny).price == Money(1), "never free"


def test_the_first_entry_of_a_borrower_applies() -> None:
    terms = [LendingTerms("vision", ("nlp",), share=50.0), *AT]
    assert (seen("nlp", terms).price, seen("web-1", terms).price) == (VALUE.share(1, 2), Money.usd(12))


@pytest.mark.parametrize("team", ["sound", None])
def test_others_may_not_use_them(team: str | None) -> None:
    offer = seen(team)
    assert offer.availability is Availability.UNAVAILABLE
    assert "vision bought it, and does not lend it to" in offer.unavailable_because


def test_without_an_entry_of_its_owner_everybody_uses_them_at_no_price() -> None:
    assert seen("nlp", []) == seen("nlp", [LendingTerms("sound", ("*",), share=50.0)]) == only(held())


@pytest.mark.parametrize("team", ["nlp", "sound"])
def test_who_has_only_asked_for_the_same_machines_owns_nothing(team: str) -> None:
    asked = bought(first=INTENT.model_copy(update={"team": team}))
    later = QUOTE.model_copy(update={"starts": QUOTE.ends, "ends": QUOTE.ends + QUOTE.length})
    coming = held(later).model_copy(update={"team": team})
    for more in (asked, coming):
        [offer] = as_seen_by([only(held())], [held(), more], "nlp", AT, [], DURING)
        assert offer == seen("nlp")


def test_what_the_owner_waits_for_is_not_lent() -> None:
    pool = only(held()).pool
    one, two = (job(id, "vision", waits_for=pool) for id in "ab")
    other = job("c", "vision", waits_for="elsewhere"), job("d", "nlp", waits_for=pool)
    assert claimed(pool, {"vision"}, [one, two, *other]) == 2
    assert (seen("nlp", AT, one, *other).slots, seen("nlp", AT, one).availability) == (1, Availability.AVAILABLE)
    offer = seen("nlp", AT, one, two)
    assert (offer.slots, offer.availability) == (0, Availability.UNAVAILABLE)
    assert offer.unavailable_because == "jobs of vision, who bought it, wait for it"


def recalled(*jobs: JobView) -> list[str]:
    return [one.id for one in jobs if one.latest and is_recalled(one, one.latest, [held()], jobs)]


def test_borrowers_leave_newest_first_for_as_many_machines_as_the_owner_lacks() -> None:
    lent, own = seen("nlp"), only(held())
    old, new = job("old", "nlp", lent), job("new", "nlp", lent, minute=5)
    waiting = [job(id, "vision", waits_for=own.pool, minute=9) for id in "ab"]
    assert recalled(old, new) == []
    assert recalled(old, new, waiting[0]) == ["new"]
    assert recalled(old, new, *waiting) == ["old", "new"]
    assert recalled(old, waiting[0]) == [], "one is free"
    assert recalled(old, job("mine", "vision", own), waiting[0]) == ["old"]
    stop = ev.StopRequested(cause=Cause.MOVED, by="x")
    leaving = advance(new, Event("new", 3, DURING, 1, stop))
    assert recalled(old, leaving, waiting[0]) == [], "that one is free soon"
    assert recalled(old, leaving, *waiting) == ["old"]


def test_owners_and_jobs_elsewhere_are_never_recalled() -> None:
    own = only(held())
    rented = replace(own, capacity_type=CapacityType.ON_DEMAND, money=MoneyKind.CASH, price=Money.usd(90))
    waiting = [job(id, "vision", waits_for=own.pool) for id in "abc"]
    assert recalled(job("mine", "vision", own), job("other", "nlp", rented), *waiting) == []


def test_a_credit_is_the_borrowers_cost_with_the_other_sign() -> None:
    hour = CostStretch(DURING, DURING + timedelta(hours=1), Money.usd("12.000001"))
    back = CostStretch(DURING, DURING, -Money.usd("0.5"))
    found = credit_for(held(), "j", 1, 3, [hour, back], DURING)
    assert faults(found) == []
    spent = [one for one in found if one.account is Account.SPENT]
    assert [(one.amount, one.covers_from, one.covers_to) for one in spent] == [
        (-hour.amount, hour.start, hour.end), (-back.amount, back.start, back.end),
    ]  # fmt: skip
    assert {(one.tags.team, one.tags.project, one.tags.user, one.tags.attempt) for one in found} == {
        ("vision", "p", "ann", None)
    }
    assert all(is_credit(one) for one in spent)
    assert len({one.movement_id for one in found}) == 2
