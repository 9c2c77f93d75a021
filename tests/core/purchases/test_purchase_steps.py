"""A purchase step by step from its events, by hand: who may approve it, what is held for it, what may follow what."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.policy.approvals import Question
from broker.core.purchases.purchase_events import (
    Accrued,
    Approved,
    AskedAgain,
    Intended,
    NotBought,
    OrderNotTaken,
    OrderPaid,
    OrderRepeated,
    OrderSent,
    OrderTaken,
    OrderUnanswered,
    PurchaseEnded,
    PurchaseEvent,
    PurchaseFailed,
    UndoAsked,
    Undone,
    UndoRefused,
)
from broker.core.purchases.purchases import (
    ImpossiblePurchase,
    Purchase,
    PurchaseState,
    apply_event,
    fold_purchase,
    is_purchase,
)
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, Undo, UndoTerms
from broker.core.values.money import Money

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CEILING = Money.usd(4000)
QUOTE = CapacityQuote(
    product=PurchaseProduct.CAPACITY_BLOCK, provider="aws", offering="cb-1", region="us-east-1", instance_type="p5",
    accelerator="H100", count=8, machines=2, starts=NOW + timedelta(days=1), ends=NOW + timedelta(days=3),
    total=Money.usd(3900), undo=Undo.NONE, quoted_at=NOW,
)  # fmt: skip
NEWER = QUOTE.model_copy(update={"offering": "cb-2"})
ASKED = Question(rule="shop", approvers=("ann", "bob", "olga"))
LATER = Question(rule="term", approvers=("olga",))
PENDING = Order(id="cr-1", state=OrderState.PENDING, word="payment-pending")
PAID = Order(id="cr-1", state=OrderState.HELD, word="scheduled")

INTENT = Intended(
    quote=QUOTE, ceiling=CEILING, binding="b1", user="ann", team="vision", project="p", environment="prod",
    questions=(ASKED,), approvals=2,
)  # fmt: skip
BOB, OLGA = Approved(by="bob", binding="b1"), Approved(by="olga", binding="b1")
SENT, NOT_TAKEN = OrderSent(quote=NEWER), OrderNotTaken(evidence="429")
UNANSWERED, TAKEN = OrderUnanswered(evidence="time-out"), OrderTaken(order=PENDING)
CHARGED, ENDED = OrderPaid(order=PAID, charged=Money.usd(3800), holding=7), PurchaseEnded()
AGAIN = AskedAgain(quote=QUOTE, questions=(ASKED, LATER))
OTHERS = AskedAgain(quote=QUOTE, questions=(ASKED.model_copy(update={"approvers": ("bob", "carl")}),))
REPEATED = OrderRepeated()
ACCRUED = Accrued(order=PAID, until=NOW + timedelta(days=2), amount=Money.usd(40))
UNDO_ASKED = UndoAsked(by="ann", terms=UndoTerms(way="cancel", charge=Money.usd(50), refund=Money.usd(1000)))
NOT_UNDONE = UndoRefused(evidence="too late")
UNDONE = Undone(order=PAID, charge=Money.usd(50), refund=Money.usd(1000))
FAILED = PurchaseFailed(reason=NotBought.REJECTED, by="olga", evidence="too dear")
S = PurchaseState

# What a purchase has gone through, and the state that it is in then.
PATHS: dict[PurchaseState, list[PurchaseEvent]] = {
    S.ASKING: [],
    S.APPROVED: [BOB, OLGA],
    S.ORDERING: [BOB, OLGA, SENT],
    S.UNKNOWN: [BOB, OLGA, SENT, UNANSWERED],
    S.ORDERED: [BOB, OLGA, SENT, TAKEN],
    S.HELD: [BOB, OLGA, SENT, TAKEN, CHARGED],
    S.UNDOING: [BOB, OLGA, SENT, TAKEN, CHARGED, UNDO_ASKED],
    S.ENDED: [BOB, OLGA, SENT, TAKEN, CHARGED, ENDED],
    S.UNDONE: [BOB, OLGA, SENT, TAKEN, CHARGED, UNDO_ASKED, UNDONE],
    S.NOT_BOUGHT: [FAILED],
}
# From which states an event leads to which.
MAY_FOLLOW: list[tuple[PurchaseEvent, set[PurchaseState], PurchaseState]] = [
    (OTHERS, {S.ASKING, S.APPROVED}, S.ASKING),
    (BOB, {S.ASKING}, S.ASKING),
    (SENT, {S.APPROVED}, S.ORDERING),
    (NOT_TAKEN, {S.ORDERING}, S.APPROVED),
    (UNANSWERED, {S.ORDERING}, S.UNKNOWN),
    (REPEATED, {S.UNKNOWN}, S.ORDERING),
    (UNDO_ASKED, {S.ORDERED, S.HELD}, S.UNDOING),
    (NOT_UNDONE, {S.UNDOING}, S.HELD),
    (UNDONE, {S.UNDOING}, S.UNDONE),
    (TAKEN, {S.ORDERING, S.UNKNOWN, S.ORDERED}, S.ORDERED),
    (CHARGED, {S.ORDERED}, S.HELD),
    (ENDED, {S.HELD}, S.ENDED),
    (FAILED, {S.ASKING, S.APPROVED, S.ORDERING, S.UNKNOWN, S.ORDERED}, S.NOT_BOUGHT),
    (INTENT, set(), S.ASKING),
]


def bought(*events: PurchaseEvent, first: Intended = INTENT) -> Purchase:
    """After these events, a minute apart."""
    return fold_purchase("purchase-1", ((NOW + n * MINUTE, event) for n, event in enumerate([first, *events])))


def test_a_request_is_as_it_was_asked_for() -> None:
    assert bought() == Purchase(
        id="purchase-1", seq=1, state=S.ASKING, user="ann", team="vision", project="p", environment="prod", quote=QUOTE,
        ceiling=CEILING, binding="b1", questions=(ASKED,), approvals=2, intended_at=NOW, changed_at=NOW,
    )  # fmt: skip
    asked = bought()
    assert (asked.approved_by, asked.sent_at, asked.order, asked.holding, asked.reason) == ((), None, None, None, None)
    assert (asked.charged, asked.evidence, asked.ended_by) == (Money.ZERO, "", "")
    nobody_is_asked = INTENT.model_copy(update={"questions": (), "approvals": 0})
    assert bought(first=nobody_is_asked).state is S.APPROVED
    assert bought(first=INTENT.model_copy(update={"approvals": 0})).state is S.ASKING
    assert bought(first=INTENT.model_copy(update={"questions": ()})).state is S.ASKING
    assert (is_purchase("purchase-1"), is_purchase("train-1")) == (True, False)


@pytest.mark.parametrize("state", list(S))
def test_what_may_follow_what(state: PurchaseState) -> None:
    purchase = bought(*PATHS[state])
    assert (purchase.state, purchase.seq) == (state, 1 + len(PATHS[state]))
    later = NOW + 90 * MINUTE
    for event, before, then in MAY_FOLLOW:
        if state in before:
            changed = apply_event(purchase, event, later)
            assert (changed.state, changed.seq, changed.changed_at) == (then, purchase.seq + 1, later)
        else:
            with pytest.raises(ImpossiblePurchase):
                apply_event(purchase, event, later)


def test_what_is_kept_of_each_step() -> None:
    sent = bought(*PATHS[S.ORDERING])
    assert (sent.quote, sent.sent_at, sent.intended_at) == (NEWER, NOW + 3 * MINUTE, NOW)
    refused = apply_event(sent, NOT_TAKEN, NOW)
    assert (refused.sent_at, refused.evidence) == (None, "429")
    unknown = bought(*PATHS[S.UNKNOWN])
    assert (unknown.evidence, unknown.order) == ("time-out", None)
    found = apply_event(unknown, TAKEN, NOW)
    assert (found.evidence, found.order) == ("", PENDING)
    held = apply_event(found, CHARGED, NOW)
    assert (held.order, held.charged, held.holding) == (PAID, Money.usd(3800), 7)
    failed = bought(FAILED)
    assert (failed.reason, failed.ended_by, failed.evidence) == (NotBought.REJECTED, "olga", "too dear")


def test_the_ceiling_is_held_until_it_is_paid_or_has_failed() -> None:
    assert {state: bought(*events).held for state, events in PATHS.items()} == {
        **dict.fromkeys((S.ASKING, S.APPROVED, S.ORDERING, S.UNKNOWN, S.ORDERED), CEILING),
        **dict.fromkeys((S.HELD, S.UNDOING, S.ENDED, S.UNDONE, S.NOT_BOUGHT), Money.ZERO),
    }
    assert {state for state in S if state.closed} == {S.ENDED, S.UNDONE, S.NOT_BOUGHT}
    assert {state for state in S if state.before_order} == {S.ASKING, S.APPROVED}


def test_each_person_that_a_rule_names_approves_once_but_not_the_own_request() -> None:
    asked = bought()
    assert [asked.may_approve(who) for who in ("ann", "bob", "olga", "eve")] == [False, True, True, False]
    assert (asked.approvals_missing, asked.open_questions, asked.agreed) == (2, (ASKED,), False)
    one = apply_event(asked, BOB, NOW)
    assert (one.approved_by, one.approvals_missing, one.open_questions, one.agreed) == (("bob",), 1, (), False)
    assert [one.may_approve(who) for who in ("bob", "olga")] == [False, True]
    both = apply_event(one, OLGA, NOW)
    assert (both.approved_by, both.approvals_missing, both.agreed) == (("bob", "olga"), 0, True)
    more = INTENT.model_copy(update={"questions": (ASKED.model_copy(update={"approvers": ("*",)}),), "approvals": 1})
    assert not bought(Approved(by="eve", binding="b1"), first=more).may_approve("bob"), "it is approved"
    own = ASKED.model_copy(update={"own_requests": True})
    assert not bought(first=INTENT.model_copy(update={"questions": (own,)})).may_approve("ann"), "never one's own"
    for wrong in (Approved(by="bob", binding="b2"), Approved(by="ann", binding="b1"), Approved(by="eve", binding="b1")):
        with pytest.raises(ImpossiblePurchase):
            apply_event(asked, wrong, NOW)


def test_rules_that_ask_later_need_their_own_approver() -> None:
    first = INTENT.model_copy(update={"approvals": 1})
    waits = bought(BOB, AGAIN, first=first)
    assert (waits.state, waits.questions, waits.open_questions) == (S.ASKING, (ASKED, LATER), (LATER,))
    assert apply_event(waits, OLGA, NOW).state is S.APPROVED


def test_a_purchase_begins_with_its_request_and_there_is_one() -> None:
    with pytest.raises(ImpossiblePurchase, match="begins with approved"):
        fold_purchase("purchase-1", [(NOW, BOB)])
    with pytest.raises(ImpossiblePurchase):
        bought(INTENT)


def test_what_recurs_stays_held_until_it_falls_due() -> None:
    plan = QUOTE.model_copy(update={"total": Money.usd(3000), "upfront": Money.usd(1000)})
    held = bought(BOB, OLGA, OrderSent(quote=plan), TAKEN, OrderPaid(order=PAID, charged=Money.usd(1000), holding=7))
    assert (held.held, held.charged, plan.recurring, plan.paid_upfront) == (
        Money.usd(2000), Money.usd(1000), Money.usd(2000), Money.usd(1000),
    )  # fmt: skip
    later = apply_event(held, ACCRUED, NOW + timedelta(days=2))
    assert (later.state, later.held, later.charged) == (S.HELD, Money.usd(1960), Money.usd(1040))
    undone = apply_event(apply_event(later, UNDO_ASKED, NOW), UNDONE, NOW)
    assert (undone.state, undone.held, undone.charged) == (S.UNDONE, Money.ZERO, Money.usd(90))


def test_what_was_not_undone_is_as_it_was_before() -> None:
    for events, state in (([BOB, OLGA, SENT, TAKEN], S.ORDERED), (PATHS[S.HELD], S.HELD)):
        back = apply_event(apply_event(bought(*events), UNDO_ASKED, NOW), NOT_UNDONE, NOW)
        assert (back.state, back.undo, back.evidence) == (state, None, "too late")


def test_an_order_that_is_repeated_keeps_the_time_of_the_first_call() -> None:
    again = bought(*PATHS[S.UNKNOWN], REPEATED)
    assert again.first_sent_at is not None
    assert again.sent_at is not None
    assert (again.repeats, again.sent_at - again.first_sent_at) == (1, 2 * MINUTE)


def test_what_recurs_falls_due_evenly_and_never_beyond_its_total() -> None:
    plan = QUOTE.model_copy(update={"total": Money.usd(48), "upfront": Money.ZERO})  # two days
    begins = plan.starts + timedelta(hours=3)
    due = [plan.amount_due(begins, begins + timedelta(hours=hours)) for hours in (-5, 0, 1, 24, 48, 500)]
    assert due == [Money.usd(amount) for amount in (0, 0, 1, 24, 48, 48)]
