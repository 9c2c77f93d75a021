"""What a settlement posts, figure by figure: its tags, its movements, and what a machine that was taken back costs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job, Workload
from broker.core.job.placements import CostTerm, TransferKind
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags, balances, faults
from broker.reconciler.settlement.settlement import (
    Settled,
    is_due,
    is_metered,
    release,
    release_of,
    settle,
    tags_of,
)
from tests.billing import one_by_one
from tests.reconciler.rehearsal import MINUTE
from tests.reconciler.settlement.test_batch import never_asked, nothing_posted
from tests.reconciler.settlement.test_charges import UP, life
from tests.reconciler.test_settled_once import held

HOUR = timedelta(hours=1)


def spot(view: JobView, **billing: timedelta) -> JobView:
    """The job with its only attempt on two spot machines, billed as the test says."""
    first = view.attempts[0]
    offer = replace(first.placement.offer, capacity_type=CapacityType.SPOT, billing=Billing(**billing))
    return replace(view, attempts=(replace(first, placement=replace(first.placement, offer=offer, nodes=2)),))


def with_attempt(view: JobView, **changes: object) -> JobView:
    return replace(view, attempts=(replace(view.attempts[0], **changes),))  # type: ignore[arg-type]  # its fields


def posted(view: JobView, entries: Sequence[Entry], now: datetime, **prices: str) -> Settled:
    """What settles it now; ``then``, ``later``: the price of one machine at first, and an hour later."""
    series = [(UP + n * HOUR, Money.usd(price)) for n, price in enumerate(prices.values())]

    def seen(offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        assert offer == view.attempts[0].placement.offer
        assert (start, end) == (UP, now)
        return series

    return settle(view, one_by_one(entries), {}, seen if prices else never_asked, nothing_posted, now, MINUTE)


def movements(entries: Sequence[Entry]) -> list[tuple[str, Movement, Account, str, datetime, datetime]]:
    """The entries that receive."""
    return [
        (one.movement_id, one.movement, one.account, str(one.amount), one.covers_from, one.covers_to)
        for one in entries
        if one.amount > Money.ZERO
    ]


def test_everything_is_tagged_with_whose_it_is_and_where_it_was_spent() -> None:
    job = Job(
        name="train", run="x", team="nlp", project="chat", environment="production", workload=Workload.INFERENCE,
    )  # fmt: skip
    view = replace(spot(life(closed=False)), job=job)
    whose = Tags("train", "ann", "nlp", "chat", "inference", "production")
    assert tags_of(view) == whose
    where = replace(
        whose, attempt=1, provider="aws", region="east", capacity_type=CapacityType.SPOT, accelerator="H100", gpus=16
    )
    assert tags_of(view, view.attempts[0]) == where
    entries = posted(view, held(Money.usd(60)), UP + HOUR, then="5").entries
    assert {entry.tags for entry in entries} == {where}


def test_each_stretch_is_its_own_movement_out_of_the_hold_and_then_beyond_it() -> None:
    """Two machines at $5 and then at $6, an hour each, of which $12 are held: $10, then $2 of $12."""
    view, now = spot(life(closed=False)), UP + 2 * HOUR
    before = held(Money.usd(12))
    after = posted(view, before, now, then="5", later="6")
    assert faults([*before, *after.entries]) == []
    half = UP + HOUR
    assert movements(after.entries) == [
        ("train/1/settle/0", Movement.SETTLE, Account.SPENT, "$10.00", UP, half),
        ("train/1/settle/1", Movement.SETTLE, Account.SPENT, "$2.00", half, now),
        ("train/1/adjust/2", Movement.ADJUST, Account.SPENT, "$10.00", half, now),
    ]
    assert {entry.at for entry in after.entries} == {now}
    assert after.meters[1].settled == Money.usd(22)
    assert after.meters[1].settled_to == now


@pytest.mark.parametrize(("taken", "hours", "cost"), [(True, 0.5, 0), (True, 1.5, 15), (False, 0.5, 5)])
def test_what_the_provider_takes_back_within_its_first_hour_is_free(taken: bool, hours: float, cost: int) -> None:
    """Two machines at $5; whoever else ends them pays."""
    view = spot(life(closed=False), free_if_interrupted_within=HOUR)
    gone = UP + hours * HOUR
    view = with_attempt(view, gone=True, gone_at=gone, state=AttemptState.INTERRUPTED, interrupted=taken)
    entries = posted(view, held(Money.usd(60)), gone, then="5").entries
    assert balances([*held(Money.usd(60)), *entries])[MoneyKind.CASH].spent == Money.usd(cost)


def test_a_hold_is_given_back_once_for_each_kind_of_money() -> None:
    view, entries = life(closed=False), held(Money.usd(20))
    given = release(view, one_by_one(entries), UP + HOUR)
    assert movements(given) == [
        ("train/release/1/cash", Movement.RELEASE, Account.AVAILABLE, "$20.00", UP + HOUR, UP + HOUR)
    ]
    assert {entry.tags for entry in given} == {tags_of(view)}
    assert release(view, one_by_one([*entries, *given]), UP + HOUR) == []
    part = release_of(view, one_by_one(entries), {MoneyKind.CASH: Money.usd(5)}, UP)
    assert balances([*entries, *part])[MoneyKind.CASH].held == Money.usd(15)
    assert release_of(view, one_by_one(entries), {MoneyKind.SANDBOX: Money.usd(5)}, UP) == []


def test_it_is_known_how_far_an_attempt_is_settled_unless_something_was_posted_that_nobody_remembers() -> None:
    view, entries = life(closed=False), held(Money.usd(60))
    assert is_metered(view, one_by_one(entries), {}), "nothing was posted so far"
    after = posted(view, entries, UP + HOUR)
    sums = one_by_one([*entries, *after.entries])
    assert is_metered(view, sums, after.meters)
    assert not is_metered(view, sums, {})
    other: AttemptView = replace(view.attempts[0], number=2)
    assert is_metered(replace(view, attempts=(other,)), sums, {}), "what was posted is another attempt's"
    assert is_metered(with_attempt(view, up_since=None), sums, {}), "no machine was up"


DATA = (CostTerm("data egress", Money.usd(7), moves=TransferKind.DATA),)


def moving(view: JobView) -> JobView:
    """The job with $7 of data that its only attempt moves."""
    return with_attempt(view, placement=replace(view.attempts[0].placement, terms=DATA))


def test_what_is_moved_is_tagged_and_booked_at_the_start_and_given_back_there() -> None:
    """$7 of data and half an hour at $5; then it turns out that there never was a machine."""
    view, before, now = moving(life(closed=False)), held(Money.usd(60)), UP + HOUR / 2
    first = posted(view, before, now)
    assert {entry.tags for entry in first.entries} == {tags_of(view, view.attempts[0])}
    assert first.meters[1].moved == Money.usd(7)
    refused = with_attempt(view, gone=True, gone_at=now, state=AttemptState.FAILED, cause=Cause.NO_CAPACITY)
    entries = [*before, *first.entries]
    after = settle(refused, one_by_one(entries), first.meters, never_asked, nothing_posted, now, MINUTE)
    back = [(str(one.amount), one.covers_from, one.covers_to) for one in after.entries if one.account is Account.HELD]
    assert sorted(back) == [("$2.50", UP, now), ("$7.00", UP, UP)]
    assert after.meters[1].moved == Money.ZERO
    assert after.meters[1].ended
    assert balances([*entries, *after.entries])[MoneyKind.CASH].held == Money.usd(60)
    assert again(refused, [*entries, *after.entries], after, now) == Settled([], {}), "it is given back once"


def test_only_what_was_posted_for_the_attempt_itself_tells_whether_it_is_due() -> None:
    """The first machine is gone and settled; the second has come up this moment."""
    now = UP + HOUR
    view = with_attempt(life(closed=False), gone=True, gone_at=now, state=AttemptState.INTERRUPTED)
    entries = held(Money.usd(60))
    before = posted(view, entries, now)
    second = replace(view.attempts[0], number=2, up_since=now, gone=False, gone_at=None, state=AttemptState.LAUNCHED)
    both = replace(view, attempts=(*view.attempts, second))
    sums = one_by_one([*entries, *before.entries])
    assert not is_due(both, sums, before.meters, now, MINUTE)
    assert is_due(both, sums, before.meters, now + MINUTE, MINUTE)


def test_an_attempt_whose_machine_never_came_up_costs_nothing_and_hides_no_other() -> None:
    view = life(closed=False)
    never = replace(view.attempts[0], up_since=None, gone=True, state=AttemptState.FAILED)
    both = replace(view, attempts=(never, replace(view.attempts[0], number=2)))
    entries = posted(both, held(Money.usd(60)), UP + HOUR).entries
    assert [one[0] for one in movements(entries)] == ["train/2/settle/0"]
    assert is_due(both, one_by_one(held(Money.usd(60))), {}, UP + HOUR, MINUTE)
    assert not is_due(replace(both, attempts=(never,)), [], {}, UP + HOUR, MINUTE)


def again(view: JobView, entries: Sequence[Entry], before: Settled, now: datetime) -> Settled:
    return settle(view, one_by_one(entries), before.meters, never_asked, nothing_posted, now, MINUTE)


def test_where_nothing_is_new_nothing_is_posted_or_remembered() -> None:
    """An end is remembered once, though it costs nothing more."""
    view, now = life(closed=False), UP + HOUR
    before = posted(view, held(Money.usd(60)), now)
    entries = [*held(Money.usd(60)), *before.entries]
    assert again(view, entries, before, now) == Settled([], {})
    gone = with_attempt(view, gone=True, gone_at=now, state=AttemptState.SUCCEEDED)
    ended = again(gone, entries, before, now)
    assert (ended.entries, ended.meters[1].ended) == ([], True)
    assert again(gone, entries, ended, now) == Settled([], {})
    second = replace(view.attempts[0], number=2)
    both = replace(gone, attempts=(*gone.attempts, second))
    assert [one[0] for one in movements(again(both, entries, ended, now).entries)] == ["train/2/settle/0"]


def test_a_hold_that_was_used_up_and_comes_back_is_dated_from_now_on() -> None:
    """$5 are used up by a look whose clock was an hour ahead; $5 come back, and last an hour from then."""
    view, entries = life(closed=False), held(Money.usd(5))
    ahead = posted(view, entries, UP + HOUR)
    entries = [*entries, *ahead.entries]
    assert balances(entries)[MoneyKind.CASH].held == Money.ZERO
    now = UP + timedelta(seconds=1)
    back = settle(view, one_by_one(entries), ahead.meters, never_asked, nothing_posted, now, timedelta(0))
    balance = balances([*entries, *back.entries])[MoneyKind.CASH]
    assert faults([*entries, *back.entries]) == []
    assert balance.held == Money.usd(5) - Money.usd(5).share(1, 3600)
    dated = [entry for entry in back.entries if entry.movement is Movement.DATE]
    assert {(one.covers_from, one.rate, one.at, one.tags) for one in dated} == {
        (now, Money.usd(5), now, tags_of(view, view.attempts[0]))
    }
    assert all(HOUR - MINUTE < one.covers_to - now < HOUR for one in dated)
    assert {one.movement_id for one in dated} == {"train/1/date/2"}


def test_spot_machines_are_due_wherever_their_latest_price_began_and_not_for_prices_after_their_end() -> None:
    """$5 and then $6 a machine; the settlement goes on from the second price."""
    view, now = spot(life(closed=False)), UP + 2 * HOUR
    before = posted(view, held(Money.usd(60)), now, then="5", later="6")
    sums = one_by_one([*held(Money.usd(60)), *before.entries])
    assert before.meters[1].since == UP + HOUR
    assert is_due(view, sums, before.meters, now + MINUTE, MINUTE)
    gone = with_attempt(view, gone=True, gone_at=now, state=AttemptState.SUCCEEDED)
    ended = {1: replace(before.meters[1], ended=True)}
    assert not is_due(gone, sums, ended, now, MINUTE)
    assert not is_due(gone, sums, ended, now + HOUR, MINUTE)


def test_a_machine_of_which_nobody_knows_when_it_went_is_billed_until_now() -> None:
    view = with_attempt(life(closed=False), gone=True, gone_at=None, state=AttemptState.FAILED, cause=Cause.COMPLETED)
    entries = posted(view, held(Money.usd(60)), UP + HOUR).entries
    assert [one[3:] for one in movements(entries)] == [("$5.00", UP, UP + HOUR)]


def test_an_end_that_turns_out_to_have_been_earlier_is_settled_again_under_the_next_number() -> None:
    view, entries = life(closed=False), held(Money.usd(60))
    gone = with_attempt(view, gone=True, gone_at=UP + HOUR, state=AttemptState.SUCCEEDED)
    ended = posted(gone, entries, UP + HOUR)
    entries = [*entries, *ended.entries]
    earlier = with_attempt(gone, gone_at=UP + HOUR / 2)
    back = again(earlier, entries, ended, UP + HOUR)
    assert movements(back.entries) == [
        ("train/1/restore/1", Movement.RESTORE, Account.HELD, "$2.50", UP + HOUR / 2, UP + HOUR)
    ]
    assert back.meters[1].settled_to == UP + HOUR / 2
