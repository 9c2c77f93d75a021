"""The read-only routes. Each shows what its caller may see."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import Response

from broker.app.market import offer_lists
from broker.app.market.offer_rows import OfferFilter, PriceKind
from broker.app.results.access import CallerIdentity
from broker.app.results.values import json_text
from broker.core.events.outcomes import JobState
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money
from broker.server import shown
from broker.server.callers import Caller, caller_of
from broker.server.pages import MOST
from broker.server.paths import MOST_OFFERS
from broker.server.shown import JobFilter

_MOST_LINES = 5_000

By = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of the page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]


def answer(document: object, status: int = 200) -> Response:
    """The HTTP response with a document, the same as the command line's ``--json``."""
    return Response(json_text(document), status, media_type="application/json")


def me(by: By) -> Response:
    """The token's owner, and what the token allows."""
    return answer(CallerIdentity.of(by.access))


def list_jobs(
    by: By,
    state: Annotated[list[JobState] | None, Query(description="Only jobs in these states.")] = None,
    team: Annotated[list[str] | None, Query(description="Only jobs of these teams, or patterns.")] = None,
    user: Annotated[list[str] | None, Query(description="Only jobs of these persons, or patterns.")] = None,
    reference: Annotated[
        str | None,
        Query(max_length=100, description="What a person calls a job: its id, its name, or how its id begins."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Jobs of the teams that the caller may see, newest first."""
    wanted = JobFilter(state or (), team or (), user or (), reference)
    return answer(shown.job_page(by, wanted, limit=limit, cursor=cursor))


def show_job(by: By, id: str) -> Response:
    """One job with its bill, its progress and its events."""
    return answer(shown.job(by, id))


def job_attempts(by: By, id: str) -> Response:
    """Every attempt of a job: place, duration, cause of its end."""
    return answer(shown.attempts(by, id))


def job_ledger(by: By, id: str) -> Response:
    """The ledger entries of a job, each with the source and age of its price; they add up to its cost."""
    return answer(shown.job_ledger(by, id))


def job_placements(by: By, id: str, limit: Annotated[int, Query(ge=1, le=100)] = 10) -> Response:
    """Why a job runs where it does: its newest placement decisions, with the offers considered."""
    return answer(shown.why_here(by, id, limit=limit))


def job_logs(
    by: By,
    id: str,
    attempt: Annotated[int | None, Query(ge=1, description="Only this attempt.")] = None,
    node: Annotated[int | None, Query(ge=0, description="Only this node; 0 is the first.")] = None,
    tail: Annotated[int, Query(ge=1, le=_MOST_LINES, description="The last lines; with `start`, the next ones.")] = 500,
    start: Annotated[int | None, Query(ge=0, description="Number of lines to skip from the beginning.")] = None,
) -> Response:
    """The end of a job's output, or what follows its first ``start`` lines: at most 5,000 lines and two million
    characters, oldest first."""
    return answer(shown.logs(by, id, attempt=attempt, node=node, tail=tail, start=start))


@dataclass(frozen=True)
class WantedMachines:
    """Which machines."""

    gpu: Annotated[list[str] | None, Query(description="Only these: H100, H100:8, cpu.")] = None
    provider: Annotated[list[str] | None, Query(description="Only these providers, or patterns.")] = None
    region: Annotated[list[str] | None, Query(description="Only these regions, or patterns.")] = None
    capacity_type: Annotated[list[CapacityType] | None, Query(description="Only these capacity types.")] = None
    instance_type: Annotated[list[str] | None, Query(description="Only these machine types, or patterns.")] = None

    def filter(self) -> OfferFilter:
        """Raises `InvalidInput` for a bad count, `UnknownName`."""
        return OfferFilter.of(vars(self))


@dataclass(frozen=True)
class WantedOffers(WantedMachines):
    """Which machines, at which prices."""

    price_kind: Annotated[list[PriceKind] | None, Query(description="Only prices of these kinds.")] = None
    available: Annotated[bool, Query(description="Only what is known to be available.")] = False
    old: Annotated[bool, Query(description="Also reference prices of more than 180 days ago (spot: 60).")] = False
    max_price: Annotated[Decimal | None, Query(ge=0, description="At most this price per GPU-hour, in USD.")] = None

    def filter(self) -> OfferFilter:
        """As `WantedMachines.filter`."""
        max_price = None if self.max_price is None else Money.usd(self.max_price)
        machines = {name: value for name, value in vars(self).items() if isinstance(value, list)}
        return OfferFilter.of(machines, available=self.available, old=self.old, max_price=max_price)


Offers = Annotated[int, Query(ge=1, le=MOST_OFFERS, description="Rows.")]
Sort = Annotated[OfferOrder, Query(description="The order.")]


def list_offers(
    by: By,
    wanted: Annotated[WantedOffers, Depends()],
    sort: Sort = OfferOrder.GPU_PRICE,
    limit: Offers = 50,
    cursor: Cursor = None,
) -> Response:
    """Current offers: cheapest GPU-hour first, then commitments of months, then machines without a GPU. Other orders
    have one page."""
    return answer(shown.offer_page(by, wanted.filter(), sort, limit=limit, cursor=cursor))


def group_offers(
    by: By,
    wanted: Annotated[WantedOffers, Depends()],
    dimensions: Annotated[str, Query(alias="by", max_length=200, description="gpu, provider, region, …")] = "gpu",
    limit: Offers = 50,
) -> Response:
    """Current offers in groups, with the cheapest of each."""
    names = offer_lists.dimensions(dimensions, where="by")
    return answer(offer_lists.offer_groups(by.broker, wanted.filter(), names, limit))


def offer_risks(
    by: By, wanted: Annotated[WantedOffers, Depends()], sort: Sort = OfferOrder.GPU_PRICE, limit: Offers = 50
) -> Response:
    """Current offers with their risk of interruption."""
    return answer(offer_lists.offer_risks(by.broker, wanted.filter(), sort, limit))


def list_approvals(
    by: By,
    decided: Annotated[bool, Query(description="Also decided requests and ended standing grants.")] = False,
    mine: Annotated[bool, Query(description="Only requests and purchases that the caller may decide.")] = False,
) -> Response:
    """Approval requests of jobs that the caller may see, oldest first; standing grants for these teams only, for
    the caller, or by the caller; and purchases of capacity that wait for approval."""
    return answer(shown.approval_list(by, decided=decided, mine=mine))


def show_queue(by: By) -> Response:
    """The waiting jobs that the caller may see, in queue order. Their positions count only these jobs."""
    return answer(shown.queue(by))
