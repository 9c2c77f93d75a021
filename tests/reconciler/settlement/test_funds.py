"""What an attempt lives on, and the lease that follows from it: figures worked out by hand, at $5 an hour."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.placements import CostTerm, TransferKind
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.policy.approvals import RequestedApproval
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement, Tags, move
from broker.ledger.meter import Meter
from broker.reconciler.settlement.funds import Funds, funds_of, lease_of
from tests.reconciler.settlement.test_charges import UP, life

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOW = UP + HOUR
HOURLY = Billing(granularity=HOUR)


def usd(amount: str | int) -> Money:
    return Money.usd(amount)


def funds(left: int = 10, rate: int = 5, billing: Billing | None = None, **more: Any) -> Funds:
    return Funds(UP, usd(left), usd(rate), billing or Billing(), **more)


def judged(amount: int = 10, rate: int = 5, hours: float = 2) -> Burn:
    return Burn(usd(amount), UP, UP + hours * HOUR, usd(rate))


class TestUntilWhen:
    def test_the_machines_stop_two_minutes_before_the_money_ends(self) -> None:
        assert funds().money_until == funds().paid_until == funds().within_judgement == UP + 118 * MINUTE

    def test_whole_hours_are_paid(self) -> None:
        assert funds(14, billing=HOURLY).money_until == UP + 118 * MINUTE

    def test_what_costs_nothing_is_paid_for_ever(self) -> None:
        free = funds(rate=0, judged_until=UP + HOUR, judged=judged(), edges=(UP + HOUR,))
        assert (free.money_until, free.paid_until, free.within_judgement) == (None, None, None)

    @pytest.mark.parametrize(("minutes", "expected"), [(60, 58), (3, 1), (2, 0), (1, 0), (119, 117), (600, 118)])
    def test_it_is_paid_no_longer_than_was_judged(self, minutes: int, expected: int) -> None:
        assert funds(judged_until=UP + minutes * MINUTE).paid_until == UP + expected * MINUTE

    @pytest.mark.parametrize(
        ("rate", "edge", "expected"), [(10, 119, True), (10, 120, False), (5, 30, False), (4, 30, False), (6, 30, True)]
    )
    def test_faster_than_judged_matters_where_a_period_ends_before(self, rate: int, edge: int, expected: bool) -> None:
        assert funds(rate=rate, judged=judged(), edges=(UP + edge * MINUTE,)).faster is expected

    def test_nothing_is_faster_than_what_nobody_judged(self) -> None:
        assert not funds(rate=10, edges=(UP + HOUR,)).faster
        assert not funds(rate=10, judged=judged()).faster

    @pytest.mark.parametrize(
        ("edges", "expected"),
        [
            ([30], 13),  # of $10, the last 90 minutes need $7.50 at $5 an hour; $2.50 last a quarter of an hour at $10
            ([90], 43),
            ([90, 30], 13),
            ([30, 90], 13),
            ([30, 500], 13),
            ([1], 0),
            ([120], 58),  # the period ends with the judgement: $10 at $10 an hour
        ],
    )
    def test_used_up_faster_it_leaves_to_later_periods_what_was_judged_for_them(
        self, edges: list[int], expected: int
    ) -> None:
        faster = funds(rate=10, judged=judged(), edges=tuple(UP + edge * MINUTE for edge in edges))
        assert faster.within_judgement == UP + expected * MINUTE

    @pytest.mark.parametrize("rate", [4, 5])
    def test_no_faster_than_judged_the_ends_of_periods_do_not_matter(self, rate: int) -> None:
        slower = funds(rate=rate, judged=judged(), edges=(UP + 30 * MINUTE,))
        assert slower.within_judgement == slower.money_until == UP + {4: 148, 5: 118}[rate] * MINUTE

    def test_egress_to_come_leaves_less_and_what_is_settled_more(self) -> None:
        """$2 settled are 12 minutes at $10 an hour; for the 18 until the edge $1.50 were judged."""
        edge = (UP + 30 * MINUTE,)
        assert funds(rate=10, judged=judged(), edges=edge, egress=usd(1)).within_judgement == UP + 7 * MINUTE
        assert funds(rate=10, judged=judged(), edges=edge, settled=usd(2)).within_judgement == UP + 19 * MINUTE

    def test_the_end_of_the_money_comes_first_where_it_is_earlier(self) -> None:
        assert funds(2, 10, judged=judged(), edges=(UP + 30 * MINUTE,)).within_judgement == UP + 10 * MINUTE


def entries(held: int, settled: int = 0, attempt: int = 1, kind: MoneyKind = MoneyKind.CASH) -> list[Entry]:
    """So much is held; of that, so much is settled for the first half-hour of an attempt."""
    hold = move(
        Movement.HOLD, usd(held), movement_id=f"hold/{attempt}/{kind}", money=kind, at=UP, covers=(UP, UP + 12 * HOUR),
        tags=Tags("train", "ann"),
    )  # fmt: skip
    spent = move(
        Movement.SETTLE, usd(settled), movement_id=f"settle/{attempt}/{kind}", money=kind, at=UP,
        covers=(UP, UP + 30 * MINUTE), tags=Tags("train", "ann", attempt=attempt),
    )  # fmt: skip
    return [*hold, *spent]


def changed(view: JobView, **of_offer: Any) -> JobView:
    """The same with another offer; ``nodes``, ``terms``: of the placement; ``up_since``: of the attempt."""
    attempt = view.attempts[0]
    of_placement = {name: of_offer.pop(name) for name in ("nodes", "terms") if name in of_offer}
    of_attempt = {name: of_offer.pop(name) for name in ("up_since",) if name in of_offer}
    offer = replace(attempt.placement.offer, **of_offer)
    placement = replace(attempt.placement, offer=offer, **of_placement)
    return replace(view, attempts=(replace(attempt, placement=placement, **of_attempt),))


def no_series(offer: Offer, since: datetime, until: datetime) -> Sequence[tuple[datetime, Money]]:
    raise AssertionError("a fixed price is not observed")


def observed(offer: Offer, since: datetime, until: datetime) -> Sequence[tuple[datetime, Money]]:
    assert (since, until) == (NOW, NOW)
    assert offer.capacity_type is CapacityType.SPOT
    return [(UP, usd(2)), (UP + MINUTE, usd(3))]


def nobody_asks() -> Sequence[datetime]:
    raise AssertionError("the ends of periods are read for nothing")


def found(view: JobView, some: Sequence[Entry], series: Any = no_series, **more: Any) -> Funds:
    return funds_of(view, view.attempts[0], some, series, NOW, **{"edges": nobody_asks, **more})


class TestFundsOfAnAttempt:
    def test_all_that_is_held_and_was_settled_lasts_from_its_start(self) -> None:
        view = life(closed=False)
        assert found(view, entries(60)) == funds(60)
        assert found(view, entries(60, settled=3)) == funds(60, settled=usd(3))

    def test_what_another_attempt_cost_is_gone(self) -> None:
        assert found(life(closed=False), entries(60, settled=3, attempt=2)) == funds(57)

    def test_a_meter_is_believed_rather_than_the_entries(self) -> None:
        meter = replace(Meter.new(UP, usd(5)), settled=usd(4), settled_to=UP + 48 * MINUTE)
        assert found(life(closed=False), entries(60, settled=3), meters={1: meter}) == funds(61, settled=usd(4))

    def test_money_of_another_kind_does_not_count(self) -> None:
        view = life(closed=False)
        assert found(view, entries(60) + entries(9, kind=MoneyKind.AMORTISED)).left == usd(60)
        assert found(view, entries(9, kind=MoneyKind.AMORTISED)).left == Money.ZERO

    def test_what_waits_for_approval_does_not_count(self) -> None:
        asked = RequestedApproval(UP, (), held={MoneyKind.CASH: usd(6)}, extension=True)
        assert found(replace(life(closed=False), asked=asked), entries(60)).left == usd(54)

    def test_each_machine_costs(self) -> None:
        assert found(changed(life(closed=False), nodes=2), entries(60)) == funds(60, 10)

    def test_the_billing_is_that_of_the_offer(self) -> None:
        assert found(changed(life(closed=False), billing=HOURLY), entries(60)) == funds(60, billing=HOURLY)

    def test_spot_money_lasts_from_the_last_settlement_on_at_the_price_of_now(self) -> None:
        view = changed(life(closed=False), capacity_type=CapacityType.SPOT)
        assert found(view, entries(60), observed) == funds(60, 3)
        later = replace(funds(57, 3), start=UP + 30 * MINUTE)
        assert found(view, entries(60, settled=3), observed) == later
        assert found(view, entries(60, settled=3, attempt=2), observed) == funds(57, 3)
        tags, first = Tags("train", "ann", attempt=1), (UP, UP + 20 * MINUTE)
        correction = move(
            Movement.SETTLE, usd(1), movement_id="c", money=MoneyKind.CASH, at=NOW, covers=first, tags=tags
        )
        assert found(view, [*entries(60, settled=3), *correction], observed) == replace(later, left=usd(56))
        meter = replace(Meter.new(UP, usd(5)), settled=usd(4), settled_to=UP + 48 * MINUTE)
        assert found(view, entries(60, settled=3), observed, meters={1: meter}) == replace(
            later, start=UP + 48 * MINUTE
        )

    def test_spot_without_an_observed_price_costs_what_was_offered(self) -> None:
        view = changed(life(closed=False), capacity_type=CapacityType.SPOT)
        assert found(view, entries(60), lambda *_: []) == funds(60, 5)

    def test_before_its_machines_are_up_egress_is_set_aside(self) -> None:
        view = changed(life(closed=False), terms=(CostTerm("data egress", usd(7), moves=TransferKind.DATA),))
        assert found(view, entries(60)) == funds(60)
        waiting = changed(view, up_since=None)
        assert found(waiting, entries(60)) == replace(funds(53, egress=usd(7)), start=NOW)
        assert found(waiting, entries(4)).left == Money.ZERO

    def test_it_is_judged_by_its_dates(self) -> None:
        view = life(closed=False)
        same, slower = judged(60, 5, 12), judged(60, 4, 12)
        until = UP + 12 * HOUR
        assert found(view, entries(60), judged=same) == funds(60, judged=same, judged_until=until)
        edges = (UP + 2 * HOUR, UP + 3 * HOUR)
        faster = funds(60, judged=slower, judged_until=until, edges=edges)
        assert found(view, entries(60), judged=slower, edges=lambda: list(edges)) == faster

    def test_dates_of_a_clock_that_was_set_back_count_from_now(self) -> None:
        ahead = Burn(usd(60), NOW + HOUR, NOW + 13 * HOUR, usd(5))
        assert found(life(closed=False), entries(60), judged=ahead).judged_until == NOW + 12 * HOUR


class TestLease:
    def lease(self, view: JobView, lives_on: Funds, billed: timedelta) -> object:
        lease = lease_of(view, view.attempts[0], lives_on, billed, NOW)
        return lease.paid_until, lease.ends_at, lease.stop

    def test_it_ends_with_the_money_or_with_the_time_of_the_job(self) -> None:
        view = life(closed=False)
        assert self.lease(view, funds(), 20 * HOUR) == (UP + 118 * MINUTE, NOW + 4 * HOUR, None)
        assert self.lease(view, funds(), 30 * HOUR) == (UP + 118 * MINUTE, NOW, None)

    def test_used_up_faster_than_judged_it_ends_earlier(self) -> None:
        faster = funds(rate=10, judged=judged(), edges=(UP + 30 * MINUTE,))
        assert self.lease(life(closed=False), faster, HOUR) == (UP + 13 * MINUTE, NOW + 23 * HOUR, None)

    def test_what_was_paid_before_has_no_end_of_money(self) -> None:
        view = life(closed=False, kind=MoneyKind.AMORTISED)
        assert self.lease(view, funds(), HOUR) == (None, NOW + 23 * HOUR, None)

    def test_it_tells_to_stop(self) -> None:
        view = life(closed=False)
        attempt: AttemptView = replace(view.attempts[0], stop_requested=Cause.MAX_COST)
        assert lease_of(view, attempt, funds(), HOUR, NOW).stop is Cause.MAX_COST
