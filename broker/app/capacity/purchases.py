"""Quotes, purchases with their approvals, undoing them, and reviewing their return."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.app.alerts.routes import recipients
from broker.app.capacity.plan import demand_from_history
from broker.app.capacity.purchase_documents import CollectedQuotes, PurchasePreviewResult
from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, Conflict, InvalidInput, MissingExtra, NoLogin, NotAllowed, UnknownName
from broker.core.market.offers import CapacityType, OfferQuery, SkippedRow
from broker.core.market.price_basis import MachineClass, price_basis
from broker.core.notices import Notice
from broker.core.policy.policy import Answer
from broker.core.purchases.purchase_events import Approved, AskedAgain, Intended, NotBought
from broker.core.purchases.purchases import PREFIX, Purchase, PurchaseState, start_purchase
from broker.core.purchases.quotes import CapacityQuote, QuoteRequest, SellsCapacity, SellsProduct, UndoTerms
from broker.core.values.money import Money
from broker.economics.reserve.holdings import BurstPrices, HeldCapacity
from broker.procurement.bought_offers import quoted_offer
from broker.procurement.buyer import CapacityBuyer
from broker.procurement.judgment import (
    PurchaseJudgement,
    PurchaseRequest,
    approvals_needed,
    decision_of,
    judge_again,
    judge_purchase,
    objections,
)
from broker.procurement.money import ceiling_entries
from broker.procurement.proposals import worth_lines, worth_of
from broker.procurement.review import PurchaseReview, Use, review
from broker.store.engine.fields import from_micros, to_micros
from broker.store.jobs.reader import StoreReader

_BASIS_PERIOD = timedelta(days=90)  # of recorded demand
MAX_QUOTE_AGE = timedelta(hours=1)  # an older quote cannot be bought: prices and blocks change by the hour


class Payer(NamedTuple):
    """Who pays for a purchase; it counts in their budgets."""

    team: str | None = None
    project: str | None = None
    environment: str | None = None


def quotes(broker: Broker, request: QuoteRequest, providers: Sequence[str] = ()) -> CollectedQuotes:
    """The present quotes of the providers; stored under numbers for a week. Providers without a login are left out
    unless named. Raises `InvalidInput` for a named provider that sells no capacity, `UnknownName`, and the first
    provider's error if none answered."""
    all_quotes: list[CapacityQuote] = []
    answered: list[str] = []
    problems: list[tuple[str, BrokerError]] = []
    for name in providers or broker.registries.providers:
        try:
            sellers = _sellers(broker, name, request, is_named=bool(providers))
        except (NoLogin, MissingExtra) as error:
            if providers:
                raise
            problems.append((name, error))
            continue
        for seller in sellers:
            try:
                all_quotes += [
                    candidate for candidate in seller.quotes(request) if not isinstance(candidate, SkippedRow)
                ]
                answered.append(name)
            except BrokerError as error:
                if _is_fatal(error, request, is_named=bool(providers)):
                    raise
                problems.append((name, error))
    if problems and not answered:
        raise problems[0][1]
    all_quotes.sort(key=lambda quote: (quote.total, quote.starts, quote.offering))
    numbers = broker.store.keep_quotes(all_quotes)
    problem_texts = tuple((name, str(error)) for name, error in problems)
    return CollectedQuotes(tuple(zip(numbers, all_quotes, strict=True)), tuple(dict.fromkeys(answered)), problem_texts)


def _sellers(broker: Broker, name: str, request: QuoteRequest, *, is_named: bool) -> list[SellsProduct]:
    """The provider's products of the requested kinds; ``is_named``: the person named the provider."""
    provider = broker.provider(name)
    if not isinstance(provider, SellsCapacity):
        if is_named:
            steps = f"gpubroker capacity checklist {name}"
            raise InvalidInput(f"{name} sells no capacity through gpubroker", where="--provider", hint=steps)
        return []
    products = [provider.products[product] for product in request.products if product in provider.products]
    if not products and is_named:
        raise InvalidInput(f"{name} sells through gpubroker: {', '.join(sorted(provider.products))}", where="--product")
    return products


def _is_fatal(error: BrokerError, request: QuoteRequest, *, is_named: bool) -> bool:
    """Whether a seller's error ends the query, instead of leaving its quotes out."""
    match error:
        case UnknownName():
            return True
        case InvalidInput():
            return len(request.products) == 1
        case NoLogin() | MissingExtra():
            return is_named
        case _:
            return False


def preview(
    broker: Broker, quote: CapacityQuote, payer: Payer, *, by: Actor, ceiling: Money | None = None
) -> PurchasePreviewResult:
    """Judge a purchase without making it: holds no money and requests no approval. ``ceiling``: as in `buy`. Raises as
    `buy`, except `NotAllowed`."""
    buying = _make_buying(quote, ceiling, payer, by)
    _require_fresh(quote, broker.clock.now())
    with broker.store.reading() as reader:
        judgement = judge_purchase(buying, broker.policy(reader), reader, broker.clock.now())
    return PurchasePreviewResult.from_parts(
        judgement, quote=quote, held_usd=buying.ceiling, approvals=approvals_needed(quote.undo),
        binding=quote.binding(buying.ceiling), basis=purchase_basis(broker, quote),
    )  # fmt: skip


def purchase_basis(broker: Broker, quote: CapacityQuote) -> tuple[str, ...]:
    """What the approvers see: the rent of a machine of the same class, the break-even, and the worth by the recorded
    demand of the last 90 days beyond what is held."""
    freshen(broker)
    now, accelerator = broker.clock.now(), quote.accelerator
    machine_class = MachineClass.of(quoted_offer(quote, quote.per_machine_hour, now, quote.product.value))
    offers = broker.store.offers(OfferQuery(accelerators=(accelerator,)))
    rent = price_basis(offers, now, accelerator, machine_class=machine_class)
    if rent is None:
        return (f"no rent of such a machine with {accelerator} is known",)
    try:
        demand = demand_from_history(broker, now - _BASIS_PERIOD).demand.get(accelerator, [])
    except InvalidInput:  # nothing is recorded
        demand = []
    holdings = [item.holding for item in broker.store.holdings() if item.holding.accelerator == accelerator]
    held = HeldCapacity.of(holdings, now, 0.0, 1.0)
    worth = worth_of(quote, demand, held.gpus, BurstPrices(rent.usd, None))
    return tuple(worth_lines(worth, rent, len(demand)))


def buy(
    broker: Broker,
    quote: CapacityQuote,
    payer: Payer,
    *,
    by: Actor,
    ceiling: Money | None = None,
    id: str | None = None,
) -> Purchase:
    """Start a purchase: hold its ceiling (USD; default: the quote's total) and notify its approvers. Nothing is ordered
    before they approve. Raises `NotAllowed` if a rule or budget denies it, and `InvalidInput` for a quote that is too
    old or a ceiling below its total. Not idempotent,
    except with an ``id``: returns the purchase with that id, if there is one."""
    buying = _make_buying(quote, ceiling, payer, by)
    now = from_micros(to_micros(broker.clock.now()))
    _require_fresh(quote, now)
    id, basis = id or f"{PREFIX}{secrets.token_hex(6)}", purchase_basis(broker, quote)
    with broker.store.writing() as tx:
        if (existing := tx.purchase(id)) is not None:
            return existing
        judgement = judge_purchase(buying, broker.policy(tx), tx, now)
        tx.record(decision_of(id, judgement, now))
        if judgement.answer is not Answer.DENY:
            event = Intended(
                quote=quote,
                ceiling=buying.ceiling,
                binding=quote.binding(buying.ceiling),
                user=by.identity,
                **payer._asdict(),
                questions=judgement.questions,
                approvals=approvals_needed(quote.undo),
                basis=basis,
            )
            tx.post(ceiling_entries(start_purchase(id, event, now), now))
            tx.append_purchase(id, event, now)
    if judgement.answer is Answer.DENY:
        raise NotAllowed(objections(judgement.denials), hint="a budget owner can change this: `gpubroker policy show`")
    return buyer(broker).advance(id)


def approve(broker: Broker, id: str, *, by: Actor, binding: str | None = None) -> Purchase:
    """Approve a purchase as ``by``, whom the policies in force must name. ``binding``: the digest of the terms that the
    person saw; raises `Conflict` if the terms of the purchase have another one. Does not order by itself
    (`advance`). Raises `NotAllowed` if ``by`` may not approve it, or the policies in force deny it."""
    with broker.store.writing() as tx:
        purchase = _load_purchase(tx.purchase(id), broker, id)
        if purchase.state is not PurchaseState.ASKING:
            raise Conflict(f"{id} needs no approval: it is {purchase.state}")
        if binding is not None and binding != purchase.binding:
            raise Conflict(
                f"the approval is for {binding}, and the purchase is {purchase.binding}", hint="look at it again"
            )
        now, judgement = broker.clock.now(), judge_current(broker, tx, purchase)
        if judgement.answer is Answer.DENY:
            hint = f"`gpubroker approvals refuse {id}`, or change the policies and approve it then"
            raise NotAllowed(f"the policies in force deny it: {objections(judgement.denials)}", where=id, hint=hint)
        updated_purchase = purchase.asking(judgement.questions)
        if not updated_purchase.may_approve(by.identity):
            raise _refusal(updated_purchase, by.identity)
        if purchase.has_other_questions(judgement.questions):
            purchase = tx.append_purchase(id, AskedAgain(quote=purchase.quote, questions=judgement.questions), now)
            if purchase.state is not PurchaseState.ASKING:
                return purchase  # the earlier approvals are enough for the policies in force
        return tx.append_purchase(id, Approved(by=by.identity, binding=purchase.binding), now)


def reject_purchase(broker: Broker, id: str, *, by: Actor, because: str = "") -> Purchase:
    """Reject a purchase as one of its approvers; its money is released. Raises `Conflict` if it does not wait for
    approval, `NotAllowed` if ``by`` is not an approver by the policies in force. If those name nobody, the earlier
    approvers may reject it."""
    purchase = broker.store.purchase(id)
    if purchase.state is not PurchaseState.ASKING:
        raise Conflict(f"{id} needs no approval: it is {purchase.state}")
    with broker.store.reading() as reader:
        judgement = judge_current(broker, reader, purchase)
    updated_purchase = purchase.asking(judgement.questions or purchase.questions)
    if not updated_purchase.may_approve(by.identity):
        raise _refusal(updated_purchase, by.identity)
    return buyer(broker).end_unbought(purchase, NotBought.REJECTED, by.identity, because)


def withdraw_purchase(broker: Broker, id: str, *, by: Actor, nothing_bought: bool = False) -> Purchase:
    """Withdraw a purchase that was not ordered yet; its money is released. ``nothing_bought``: for an order without an
    answer, the person has verified at the provider that nothing was bought. Raises `NotAllowed` unless ``by`` is the
    buyer or an administrator, and `Conflict` if it is too late."""
    purchase = broker.store.purchase(id)
    if not by.may_act_for(purchase.user):
        raise NotAllowed(f"it is the purchase of {purchase.user}; {by.identity} cannot withdraw it", where=id)
    if purchase.state.before_order:
        return buyer(broker).end_unbought(purchase, NotBought.WITHDRAWN, by.identity, "")
    if purchase.state is PurchaseState.UNKNOWN and nothing_bought:
        return buyer(broker).declare_nothing_bought(purchase, by.identity, "verified at the provider")
    if purchase.state is PurchaseState.UNKNOWN:
        raise InvalidInput(
            f"it is unknown whether {purchase.quote.provider} accepted the order",
            where=id,
            hint="look at the provider's console; if nothing was bought, add --nothing-bought",
        )
    raise Conflict(f"it cannot be withdrawn: its state is {purchase.state}", where=id)


def judge_current(broker: Broker, reader: StoreReader, purchase: Purchase) -> PurchaseJudgement:
    """The verdict of the policies in force on a purchase: who may decide about it."""
    return judge_again(purchase, purchase.quote, broker.policy(reader), reader, broker.clock.now())


def buyer(broker: Broker) -> CapacityBuyer:
    """The component that executes purchases in this process. It calls sellers as `find_seller`."""

    def seller(quote: CapacityQuote) -> SellsProduct:
        return find_seller(broker, quote)

    def tell(notice: Notice) -> None:
        broker.store.outbox.add(notice, recipients(broker.settings, notice), broker.clock.now())

    return CapacityBuyer(broker.store, seller, broker.policy, broker.clock, tell)


def find_seller(broker: Broker, quote: CapacityQuote) -> SellsProduct:
    """The seller of the product of the quote. Raises `InvalidInput` if this version knows none."""
    provider = broker.provider(quote.provider)
    if not isinstance(provider, SellsCapacity) or quote.product not in provider.products:
        raise InvalidInput(f"{quote.provider} sells no {quote.product} through gpubroker")
    return provider.products[quote.product]


def _require_fresh(quote: CapacityQuote, now: datetime) -> None:
    """Raise `InvalidInput` for a quote that can no longer be bought."""
    if now - quote.quoted_at > MAX_QUOTE_AGE:
        raise InvalidInput(f"the quote is of {quote.quoted_at:%Y-%m-%d %H:%M} UTC", hint="ask again: capacity quote")
    if quote.starts <= now and not quote.at_once:
        raise InvalidInput(f"its time began at {quote.starts:%Y-%m-%d %H:%M} UTC", hint="ask again: capacity quote")


def _make_buying(quote: CapacityQuote, ceiling: Money | None, payer: Payer, by: Actor) -> PurchaseRequest:
    if ceiling is not None and ceiling < quote.total:
        raise InvalidInput(
            f"the quote is {quote.total}, above the ceiling of {ceiling}", where="--ceiling", hint="raise the ceiling"
        )
    return PurchaseRequest(quote, quote.total if ceiling is None else ceiling, by.identity, *payer)


def _load_purchase(purchase: Purchase | None, broker: Broker, id: str) -> Purchase:
    return broker.store.purchase(id) if purchase is None else purchase


def _refusal(purchase: Purchase, approver: str) -> NotAllowed:
    excluded = {purchase.user, *purchase.approved_by}
    names = sorted({name for question in purchase.questions for name in question.approvers} - excluded)
    others_text = f"; {' or '.join(names)} may approve" if names else ""
    if approver == purchase.user:
        return NotAllowed(f"nobody approves their own purchase{others_text}", where=purchase.id)
    if approver in purchase.approved_by:
        text = f"{approver} has approved it already; {purchase.approvals_missing} more have to{others_text}"
        return Conflict(text, where=purchase.id)
    return NotAllowed(f"{approver} is not an approver of it{others_text}", where=purchase.id)


def undo_terms(broker: Broker, id: str) -> UndoTerms:
    """The present cost of undoing a purchase, from the provider. Changes nothing. Raises `Conflict` if it was not
    ordered or is over, `Refused` if it cannot be undone, and the provider's errors."""
    purchase = broker.store.purchase(id)
    if purchase.state not in (PurchaseState.ORDERED, PurchaseState.HELD) or purchase.order is None:
        is_before_order = purchase.state.before_order
        raise Conflict(
            f"it cannot be undone: its state is {purchase.state}",
            where=id,
            hint=f"gpubroker capacity undo {id}" if is_before_order else f"gpubroker capacity purchases {id}",
        )
    seller = find_seller(broker, purchase.quote)
    orders = seller.find_orders(purchase.quote, purchase.id)
    newest = next((order for order in orders if order.id == purchase.order.id), purchase.order)
    return seller.undo_terms(purchase.quote, newest)


def undo(broker: Broker, id: str, *, by: Actor, max_charge: Money = Money.ZERO) -> Purchase:
    """Cancel or return a purchase if the provider charges ``max_charge`` (USD) for that. The request is recorded before
    the call; `CapacityBuyer.advance` finds out what became of a call without an answer. Raises as `undo_terms`,
    `NotAllowed` unless ``by`` is the buyer, an approver by the policies in force or an administrator, and
    `InvalidInput` if it costs more."""
    purchase = broker.store.purchase(id)
    if not by.may_act_for(purchase.user) and not _is_approver(broker, purchase, by):
        raise NotAllowed(f"it is the purchase of {purchase.user}; {by.identity} cannot undo it", where=id)
    terms = undo_terms(broker, id)
    if terms.charge > max_charge:
        raise InvalidInput(
            f"undoing it costs {terms.charge.rounded(2)}; at most {max_charge.rounded(2)} was accepted",
            where="--at-most",
            hint=f"--at-most {terms.charge}",
        )
    return buyer(broker).ask_undo(purchase, terms, by.identity)


def _is_approver(broker: Broker, purchase: Purchase, by: Actor) -> bool:
    with broker.store.reading() as reader:
        questions = judge_current(broker, reader, purchase).questions
    return any(question.may_answer(by.identity, purchase.user) for question in questions)


def purchase_review(
    broker: Broker, id: str, *, on_demand: float | None = None, spot: float | None = None
) -> PurchaseReview:
    """The review of a purchase up to now. ``on_demand``, ``spot``: USD per GPU-hour, instead of the cheapest current
    price at its provider. Use is the machine time of jobs on reserved machines with its accelerator at its provider; if
    several such purchases are in force at once, each shows all of that use. Raises `InvalidInput` if it was not
    bought."""
    purchase, now = broker.store.purchase(id), broker.clock.now()
    quote = purchase.quote
    if purchase.paid_at is None:
        raise InvalidInput(f"{id} is {purchase.state}: nothing was bought", where=id)
    with broker.store.reading() as reader:
        uses: list[Use] = [
            (item.team, item.since, item.until or now, item.gpus)
            for item in reader.machine_time(since=quote.starts)
            if (item.provider, item.card, item.capacity_type) == (quote.provider, quote.accelerator, _RESERVED)
        ]
    query = OfferQuery(accelerators=(quote.accelerator,), providers=(quote.provider,))
    offers = broker.store.offers(query)

    def best_price(kind: CapacityType) -> float | None:
        basis = price_basis(offers, now, quote.accelerator or "", kind)
        return None if basis is None or not basis.is_current else basis.usd

    return review(
        purchase,
        uses,
        now,
        best_price(CapacityType.ON_DEMAND) if on_demand is None else on_demand,
        best_price(CapacityType.SPOT) if spot is None else spot,
    )


_RESERVED = CapacityType.RESERVED
