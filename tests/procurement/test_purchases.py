"""A purchase from the quote to the end of its time, and every way in which it does not come about."""

from datetime import timedelta

import pytest

from broker.app.capacity import purchases
from broker.app.capacity.purchases import undo
from broker.app.jobs.approvals import GrantRequest, give_standing
from broker.app.service.sweep import sweep
from broker.core.errors import Conflict, InvalidInput, NotAllowed, RetryLater
from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import PurchaseState
from broker.core.purchases.quotes import CapacityQuote
from broker.core.values.money import Money
from tests.actors import ANN, BOB, OLGA, ROOT, person
from tests.fakes.aws_cloud import AwsFault
from tests.procurement.conftest import NOW, POLICY, TOTAL, Shop

NOTHING = (Money.ZERO, Money.ZERO)


def test_a_block_is_bought_after_two_approvals_and_paid_once_aws_has_charged(shop: Shop) -> None:
    asked = shop.intend()
    assert (asked.state, asked.approvals_missing, shop.money(asked)) == (PurchaseState.ASKING, 2, (TOTAL, Money.ZERO))
    assert shop.advance(asked) == asked
    assert shop.bought == []

    one = purchases.approve(shop.broker, asked.id, by=BOB)
    assert (one.state, shop.advance(one).state) == (PurchaseState.ASKING, PurchaseState.ASKING)
    assert purchases.approve(shop.broker, asked.id, by=OLGA).state is PurchaseState.APPROVED

    ordered = shop.advance(asked)
    assert (ordered.state, shop.money(asked)) == (PurchaseState.ORDERED, (TOTAL, Money.ZERO))
    assert [row["Tags"] for row in shop.bought] == [[{"Key": "gpubroker-purchase", "Value": asked.id}]]
    shop.paid()
    held = shop.advance(asked)
    assert (held.state, held.charged, shop.money(asked)) == (PurchaseState.HELD, TOTAL, (Money.ZERO, TOTAL))
    [recorded] = shop.broker.store.holdings()
    assert (recorded.number, recorded.holding.gpus, recorded.holding.upfront) == (held.holding, 16, TOTAL)

    shop.clock.time = held.quote.ends
    assert shop.advance(asked).state is PurchaseState.ENDED
    assert len(shop.bought) == 1


def test_what_was_bought_counts_in_the_month_of_the_payment(shop: Shop) -> None:
    shop.advance(shop.approved())
    shop.paid()
    shop.advance(shop.broker.store.purchases()[0])
    shop.block(2, fee="7000")
    with pytest.raises(NotAllowed, match=r"\$6,000.00 is left \(\$4,000.00 spent"):
        shop.intend()
    shop.clock.time = NOW.replace(month=12, day=1)
    shop.cloud.blocks.clear()
    shop.block(3, fee="7000", starts_in=10)
    assert shop.intend().state is PurchaseState.ASKING


def test_two_purchases_do_not_hold_more_than_a_budget_has(shop: Shop) -> None:
    shop.block(2, fee="6000.01")
    shop.intend()
    with pytest.raises(NotAllowed, match="capital"):
        shop.buy(max((shop.quote(), *_all(shop)), key=lambda one: one.total))


def _all(shop: Shop) -> list[CapacityQuote]:
    found = purchases.quotes(shop.broker, shop.quote().request.model_copy(update={"latest": None}), ["aws"])
    return [one for _, one in found.quotes]


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("version: 1\npolicy: p\nbudgets: [{name: b, amount: $9999, period: month}]\n", "no policy lets ann buy"),
        (POLICY.replace("$9000", "$3999"), r"\$4,000.*the limit is \$3,999"),
        (POLICY.replace("14d", "1d"), "for 48h; at most 24h is allowed"),
        (POLICY.replace("providers: [aws]", "providers: [gcp]"), "from gcp, not from aws"),
        (POLICY.replace("buyers: [ann]", "buyers: [carl]"), "ann may not buy"),
        (POLICY.replace("name: shop", "name: shop\n    scope: {team: nlp}"), "no policy lets ann buy"),
        (POLICY.replace("$10000", "$100"), "budget capital"),
        (POLICY + "  - {name: places, allowed_locations: {regions: ['eu-*']}}\n", "us-east-1"),
        (POLICY + "  - {name: cards, accelerators: {deny: [H100]}}\n", "H100"),
    ],
)
def test_a_purchase_that_the_policies_forbid_holds_nothing(shop: Shop, policy: str, says: str) -> None:
    shop.broker.store.activate_policy({"policy.yaml": policy}, by="olga")
    with pytest.raises(NotAllowed, match=says):
        shop.intend()
    assert shop.broker.store.purchases(closed=True) == []
    with shop.broker.store.reading() as look:
        assert look.entries() == []


def test_limits_of_jobs_are_not_limits_of_purchases(shop: Shop) -> None:
    policy = POLICY + "  - {name: small, max_job_cost: $5}\n  - {name: short, max_job_duration: 1h}\n"
    shop.broker.store.activate_policy({"policy.yaml": policy}, by="olga")
    assert shop.intend().state is PurchaseState.ASKING


def test_a_standing_grant_approves_no_purchase(shop: Shop) -> None:
    policy = POLICY + "  - {name: dear, approve_above: {cost: $1000, approvers: [carl]}}\n"
    shop.broker.store.activate_policy({"policy.yaml": policy}, by="olga")
    until = shop.clock.now() + timedelta(days=3)
    request = GrantRequest(Money.usd(9000), until, ("dear",), users=("ann",))
    give_standing(shop.broker, request, by=person("carl"))
    assert {one.rule for one in shop.intend().open_questions} == {"shop", "dear"}


def test_nobody_approves_twice_or_their_own_or_without_being_an_approver(shop: Shop) -> None:
    asked = shop.intend()
    for who, says in ((ANN, "their own"), (person("carl"), "not an approver"), (ROOT, "not an approver")):
        with pytest.raises(NotAllowed, match=says):
            purchases.approve(shop.broker, asked.id, by=who)
    purchases.approve(shop.broker, asked.id, by=BOB)
    with pytest.raises(NotAllowed, match="already; 1 more"):
        purchases.approve(shop.broker, asked.id, by=BOB)


def test_an_approval_of_something_else_is_refused(shop: Shop) -> None:
    asked = shop.intend()
    with pytest.raises(Conflict, match="the approval is for"):
        purchases.approve(shop.broker, asked.id, by=BOB, binding="0123456789ab")
    assert purchases.approve(shop.broker, asked.id, by=BOB, binding=asked.binding).approved_by == ("bob",)


def test_another_price_ceiling_time_or_place_is_another_binding(shop: Shop) -> None:
    quote = shop.quote()
    changed = [
        quote.model_copy(update=update)
        for update in ({"machines": 3}, {"starts": quote.starts - timedelta(days=1)}, {"zone": "use1-az1"})
    ]
    known = {one.binding(TOTAL) for one in (quote, *changed)} | {quote.binding(TOTAL + Money(1))}
    assert len(known) == 5


def test_a_higher_price_within_the_ceiling_is_paid_and_the_rest_released(shop: Shop) -> None:
    asked = shop.approved(ceiling=Money.usd(5000))
    assert shop.money(asked) == (Money.usd(5000), Money.ZERO)
    shop.cloud.blocks[0]["UpfrontFee"] = "4400.5"
    shop.advance(asked)
    shop.paid()
    assert shop.advance(asked).charged == Money.usd("4400.5")
    assert shop.money(asked) == (Money.ZERO, Money.usd("4400.5"))


def test_the_same_block_under_another_offering_is_bought(shop: Shop) -> None:
    asked = shop.approved()
    shop.cloud.blocks[0]["CapacityBlockOfferingId"] = "cb-renumbered"
    assert shop.advance(asked).quote.offering == "cb-renumbered"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"UpfrontFee": "4000.01"}, NotBought.DEARER),
        ({"StartDate": NOW + timedelta(days=3)}, NotBought.GONE),
        ({"InstanceCount": 1}, NotBought.GONE),
        ({"AvailabilityZone": "us-east-1b"}, NotBought.GONE),
    ],
)
def test_what_is_not_what_was_approved_is_not_bought(shop: Shop, change: dict[str, object], reason: NotBought) -> None:
    asked = shop.approved()
    shop.cloud.blocks[0].update(change)
    ended = shop.advance(asked)
    assert (ended.state, ended.reason, shop.bought) == (PurchaseState.NOT_BOUGHT, reason, [])
    assert shop.money(asked) == NOTHING


def test_policies_that_changed_since_the_approval_decide(shop: Shop) -> None:
    asked = shop.approved()
    shop.broker.store.activate_policy({"policy.yaml": POLICY.replace("$9000", "$3000")}, by="olga")
    ended = shop.advance(asked)
    assert (ended.reason, shop.bought, shop.money(asked)) == (NotBought.POLICY, [], NOTHING)
    assert "$3,000" in ended.evidence


def test_a_rule_that_is_new_since_the_approval_asks_again(shop: Shop) -> None:
    asked = shop.approved()
    more = POLICY + "  - {name: dear, approve_above: {cost: $1000, approvers: [carl]}}\n"
    shop.broker.store.activate_policy({"policy.yaml": more}, by="olga")
    again = shop.advance(asked)
    assert (again.state, [one.rule for one in again.open_questions], shop.bought) == (
        PurchaseState.ASKING,
        ["dear"],
        [],
    )
    purchases.approve(shop.broker, asked.id, by=person("carl"))
    assert shop.advance(asked).state is PurchaseState.ORDERED


def test_five_minutes_before_it_begins_it_is_too_late(shop: Shop) -> None:
    asked = shop.intend()
    shop.clock.time = asked.quote.starts - timedelta(minutes=5, seconds=1)
    assert shop.advance(asked) == asked
    shop.clock.time += timedelta(seconds=1)
    assert shop.advance(asked).reason is NotBought.TOO_LATE


OTHERS = POLICY.replace("approvers: [ann, bob, olga]", "approvers: [carl, dora]")


def test_only_approvers_of_the_policy_in_force_decide(shop: Shop) -> None:
    asked = shop.intend()
    shop.broker.store.activate_policy({"policy.yaml": OTHERS}, by="olga")
    for decide in (purchases.approve, purchases.reject_purchase):
        with pytest.raises(NotAllowed, match="not an approver of it; carl or dora may approve"):
            decide(shop.broker, asked.id, by=BOB)
    assert [one.approvers for one in shop.advance(asked).questions] == [("carl", "dora")]
    assert len(shop.notices()) == 2, "the new approvers are notified, too"
    purchases.approve(shop.broker, asked.id, by=person("carl"))
    purchases.approve(shop.broker, asked.id, by=person("dora"))
    assert shop.advance(asked).state is PurchaseState.ORDERED
    with pytest.raises(NotAllowed, match="bob cannot undo it"):
        undo(shop.broker, asked.id, by=BOB)


@pytest.mark.parametrize("approvals", [1, 2])
def test_approvals_of_people_who_are_no_approvers_any_more_do_not_count(shop: Shop, approvals: int) -> None:
    asked = shop.intend()
    for who in (BOB, OLGA)[:approvals]:
        purchases.approve(shop.broker, asked.id, by=who)
    shop.broker.store.activate_policy({"policy.yaml": OTHERS}, by="olga")
    again = shop.advance(asked)
    assert (again.state, again.approvals_missing, shop.bought) == (PurchaseState.ASKING, 2, [])
    purchases.approve(shop.broker, asked.id, by=person("carl"))
    assert shop.advance(asked).state is PurchaseState.ASKING, "a second one has to approve"
    shop.broker.store.activate_policy({"policy.yaml": POLICY.replace("bob, olga", "bob, carl")}, by="olga")
    assert (shop.advance(asked).state is PurchaseState.ORDERED) == (approvals > 0), "bob is an approver again"


@pytest.mark.parametrize(
    "fault",
    [
        AwsFault("UnauthorizedOperation", 403),
        AwsFault("InvalidCapacityBlockOfferingId.Expired", 400),
        AwsFault("InsufficientInstanceCapacity", 400),
    ],
)
def test_a_refusal_of_the_provider_ends_it(shop: Shop, fault: AwsFault) -> None:
    asked = shop.approved()
    shop.cloud.faults["PurchaseCapacityBlock"] = [fault]
    ended = shop.advance(asked)
    assert (ended.reason, shop.money(asked)) == (NotBought.PROVIDER_REFUSED, NOTHING)
    assert fault.code in ended.evidence


def test_an_order_that_the_provider_did_not_look_at_is_sent_again(shop: Shop) -> None:
    asked = shop.approved()
    shop.cloud.unsold = AwsFault("RequestLimitExceeded", 503)
    with pytest.raises(RetryLater):
        shop.advance(asked)
    assert shop.broker.store.purchase(asked.id).state is PurchaseState.APPROVED
    shop.cloud.unsold = None
    assert shop.advance(asked).state is PurchaseState.ORDERED


def test_a_payment_that_fails_gives_the_money_back(shop: Shop) -> None:
    asked = shop.approved()
    shop.advance(asked)
    shop.paid("payment-failed")
    assert (shop.advance(asked).reason, shop.money(asked)) == (NotBought.NOT_PAID, NOTHING)
    assert shop.broker.store.holdings() == []


def test_a_purchase_can_be_withdrawn_or_rejected_before_it_is_ordered(shop: Shop) -> None:
    mine = shop.intend()
    with pytest.raises(NotAllowed, match="purchase of ann"):
        purchases.withdraw_purchase(shop.broker, mine.id, by=BOB)
    assert purchases.withdraw_purchase(shop.broker, mine.id, by=ANN).reason is NotBought.WITHDRAWN
    other = shop.intend()
    with pytest.raises(NotAllowed):
        purchases.reject_purchase(shop.broker, other.id, by=person("carl"))
    refused = purchases.reject_purchase(shop.broker, other.id, by=BOB, because="spot is enough")
    assert (refused.reason, refused.ended_by, refused.evidence) == (NotBought.REJECTED, "bob", "spot is enough")
    assert shop.money(mine) == shop.money(other) == NOTHING
    with pytest.raises(Conflict):
        purchases.withdraw_purchase(shop.broker, other.id, by=ANN)


def test_after_its_time_has_begun_nothing_is_ordered(shop: Shop) -> None:
    asked, waiting = shop.approved(), shop.intend()
    shop.clock.time = asked.quote.starts
    assert [shop.advance(one).reason for one in (asked, waiting)] == [NotBought.TOO_LATE] * 2
    assert (shop.bought, shop.money(asked), shop.money(waiting)) == ([], NOTHING, NOTHING)


def test_an_old_quote_is_not_bought(shop: Shop) -> None:
    quote = shop.quote()
    shop.clock.advance(timedelta(hours=1, seconds=1))
    with pytest.raises(InvalidInput, match="the quote is of 2026-11-23 12:00"):
        shop.buy(quote)
    with pytest.raises(InvalidInput, match="the quote is of 2026-11-23 12:00"):
        purchases.preview(shop.broker, quote, purchases.Payer(), by=ANN)


def test_a_ceiling_below_the_quote_is_an_error(shop: Shop) -> None:
    with pytest.raises(InvalidInput, match="ceiling"):
        shop.intend(ceiling=Money.usd(3999))


@pytest.mark.parametrize("days", [15, 20, 183])
def test_aws_sells_no_such_length(shop: Shop, days: int) -> None:
    with pytest.raises(InvalidInput, match="1 to 14 days"):
        shop.quote(days=days)


def test_people_are_told_once_of_each_state(shop: Shop) -> None:
    asked = shop.approved()
    shop.advance(asked)
    shop.paid()
    for _ in range(3):
        shop.advance(asked)
    told = [f"purchase/{asked.id}/{state}" for state in ("asking", "held")]
    assert sorted(shop.notices()) == sorted(told)


def test_the_money_of_a_purchase_is_nobodys_leftover(shop: Shop) -> None:
    shop.intend()
    shop.clock.advance(timedelta(hours=20))
    assert sweep(shop.broker).found == ()


def test_purchases_follow_from_their_events(shop: Shop) -> None:
    asked = shop.approved()
    shop.advance(asked)
    shop.paid()
    before = shop.advance(asked)
    shop.broker.store.rebuild()
    assert shop.broker.store.purchase(asked.id) == before
    kinds = [event.kind for _, event in shop.broker.store.purchase_events(asked.id)]
    assert kinds == ["intended", "approved", "approved", "order_sent", "order_taken", "order_paid"]
