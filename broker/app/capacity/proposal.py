"""A proposal of quotes with their arithmetic, from past use; each of its lines can be bought once."""

from collections.abc import Sequence
from pathlib import Path

from broker.app.capacity import purchases
from broker.app.capacity.limits import CapacityLimits
from broker.app.capacity.plan import CapacityPlans
from broker.app.results.proposal import ProposalLineResult, ProposalResult, read_proposal
from broker.app.results.purchases import join_by_name
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.market.offers import SkippedRow
from broker.core.purchases.purchases import PREFIX, Purchase
from broker.core.purchases.quotes import CapacityQuote, QuoteRequest
from broker.procurement.proposals import ladder, proposal_id, purchase_of, worth_of


def propose(
    broker: Broker, plans: CapacityPlans, accelerator: str, request: QuoteRequest, providers: Sequence[str] = ()
) -> ProposalResult:
    """Query quotes and compute the worth of each from the demand and the prices of the plan. Buys nothing. Raises as
    `purchases.quotes`, and `InvalidInput` if the plan has no such accelerator."""
    plan = next((candidate for candidate in plans.plans if candidate.accelerator == accelerator), None)
    if plan is None:
        raise InvalidInput(f"no demand for {accelerator} is known", hint="--demand H100=FILE")
    quote_result = purchases.quotes(broker, request, providers)
    demand, limits = plans.demand[accelerator], CapacityLimits.of(broker.policy())
    quotes_with_worth = [
        (quote, worth_of(quote, demand, plan.held_gpus, plan.market)) for _, quote in quote_result.quotes
    ]
    market = plan.market
    assessed = [(quote, worth, limits.bars(quote, worth, market.burst)) for quote, worth in quotes_with_worth]
    rejected = [(quote.provider, objection) for quote, _, objection in assessed if objection]
    lines = ladder([(quote, worth) for quote, worth, objection in assessed if not objection])
    saving = [line for line in lines if line.worth.saves.micros > 0]
    best = max(saving, key=lambda line: line.worth.saves, default=None)
    return ProposalResult(
        id=proposal_id([line.quote for line in lines]),
        as_of=plans.now,
        demand_from=plans.source,
        accelerator=accelerator,
        held_gpus=plan.held_gpus,
        on_demand_usd=market.on_demand,
        spot_usd=market.spot,
        best=None if best is None else best.number,
        lines=[ProposalLineResult.of(line) for line in lines],
        problems=join_by_name([*quote_result.problems, *rejected]),
        notes=[*plan.notes, *plans.notes],
    )


def buy_lines(broker: Broker, file: Path, lines: Sequence[int], payer: purchases.Payer, *, by: Actor) -> list[Purchase]:
    """Request the purchases of these lines of a proposal's file; without ``lines``, of its best line. Raises as
    `read_proposal` and `buy_line`, and `InvalidInput` before the first purchase for lines that the file does not
    have."""
    proposal, quotes = read_proposal(file)
    chosen_lines = lines or ([] if proposal.best is None else [proposal.best])
    if not chosen_lines:
        raise InvalidInput("no line of it saves anything", where=str(file), hint="name lines: --line 1")
    for line in chosen_lines:
        if line not in quotes:
            raise InvalidInput(f"it has no line {line}", where="--line", hint=f"1 to {len(quotes)}")
    return [buy_line(broker, proposal.id, line, quotes[line], payer, by=by) for line in dict.fromkeys(chosen_lines)]


def buy_line(
    broker: Broker, proposal: str, line: int, quote: CapacityQuote, payer: purchases.Payer, *, by: Actor
) -> Purchase:
    """Request the purchase of a line of a proposal, for at most its quoted price, at the provider's newest price.
    Idempotent: a line is bought once. Raises as `purchases.buy`, and `InvalidInput` if the provider no longer offers it
    or asks for more."""
    id = f"{PREFIX}{purchase_of(proposal, line)}"
    with broker.store.reading() as reader:
        if (existing := reader.purchase(id)) is not None:
            return existing
    seller = purchases.find_seller(broker, quote)
    current_quotes = [candidate for candidate in seller.quotes(quote.request) if not isinstance(candidate, SkippedRow)]
    matching = [candidate for candidate in current_quotes if candidate.same_capacity(quote)]
    hint = "make a new proposal: gpubroker capacity propose"
    if not matching:
        raise InvalidInput(f"{quote.provider} does not offer line {line} any more", hint=hint)
    newest = min(matching, key=lambda candidate: candidate.total)
    if newest.total > quote.total:
        message = f"line {line} costs {newest.total.rounded(2)} now; {quote.total.rounded(2)} was proposed"
        raise InvalidInput(message, hint=hint)
    return purchases.buy(broker, newest, payer, by=by, ceiling=quote.total, id=id)
