"""A proposal of quotes with their arithmetic, from past use; each of its lines can be bought once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from broker.app.capacity import purchases
from broker.app.capacity.limits import CapacityLimits
from broker.app.capacity.plan import CapacityPlanList
from broker.app.capacity.purchase_documents import QuoteResult, join_by_name
from broker.app.documents import Figure, Moment, Result
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.market.offers import SkippedRow
from broker.core.purchases.purchases import PREFIX, Purchase
from broker.core.purchases.quotes import CapacityQuote, QuoteRequest
from broker.core.values.money import Money
from broker.economics.reserve.holdings import BurstPrices
from broker.procurement.proposals import ProposedLine, ladder, proposal_id, purchase_of, worth_of


class ProposalLineResult(Result):
    """One line. ``use``: the share of its GPU-hours that the past would have used; ``break_even``: the use from which
    on it is cheaper than on demand, ``break_even_spot`` than spot; null without a price. ``saves_usd``: against on
    demand at that use, over its period; negative: it costs more. ``regret_usd``: the most it can lose;
    ``regret_at_half_usd``: at half that use. ``order``: what is bought, as `capacity buy --from-plan` reads it."""

    line: int
    quote: QuoteResult
    usd_per_gpu_hour: Figure
    use: Figure
    break_even: Figure
    break_even_spot: Figure | None
    saves_usd: Money
    saves_spot_usd: Money | None
    regret_usd: Money
    regret_at_half_usd: Money
    order: dict[str, Any]

    @classmethod
    def of(cls, proposed_line: ProposedLine) -> Self:
        worth = proposed_line.worth
        return cls.from_parts(
            worth,
            line=proposed_line.number,
            quote=proposed_line.quote,
            order=proposed_line.quote.model_dump(mode="json"),
        )


class ProposalResult(Result):
    """`capacity propose`: from the least to the most committed. ``id``: of exactly these lines; ``best``: the line that
    saves most, or null. ``on_demand_usd``, ``spot_usd``: per GPU-hour. ``problems``: by provider, what sellers that
    failed said, and which of its quotes policies let nobody propose, parted by semicolons. ``notes``: of the capacity
    plan that it is based on."""

    id: str
    as_of: Moment
    demand_from: str
    accelerator: str
    held_gpus: int
    on_demand_usd: Figure
    spot_usd: Figure | None
    best: int | None
    lines: list[ProposalLineResult]
    problems: dict[str, str]
    notes: list[str]


def read_proposal(file: Path) -> tuple[ProposalResult, dict[int, CapacityQuote]]:
    """A proposal's file, and the quotes by line. Raises `InvalidInput` for a file that cannot be read, is not a
    proposal, or was changed."""
    where, hint = str(file), "make it with `gpubroker capacity propose … --json > FILE`"
    try:
        proposal = ProposalResult.model_validate_json(file.read_text("utf-8"))
        quotes = {line.line: CapacityQuote.model_validate(line.order, extra="forbid") for line in proposal.lines}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=where) from error
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first_error["loc"])
        detail = f"{key}: {first_error['msg']}" if key else first_error["msg"]
        raise InvalidInput(f"the file is not a proposal of purchases: {detail}", where=where, hint=hint) from error
    if proposal_id(list(quotes.values())) != proposal.id:
        raise InvalidInput("the lines of the proposal were changed", where=where, hint=hint)
    return proposal, quotes


def propose(
    broker: Broker,
    plans: CapacityPlanList,
    accelerator: str,
    demand: Sequence[int],
    request: QuoteRequest,
    providers: Sequence[str] = (),
) -> ProposalResult:
    """Query quotes and compute the worth of each from the demand (GPUs by hour) and the prices of the plan. Buys
    nothing. Raises as `purchases.quotes`, and `InvalidInput` if the plan has no such accelerator."""
    plan = next((candidate for candidate in plans.plans if candidate.accelerator == accelerator), None)
    if plan is None:
        raise InvalidInput(f"no demand for {accelerator} is known", hint="--demand H100=FILE")
    quote_result = purchases.quotes(broker, request, providers)
    prices, limits = plan.prices, CapacityLimits.of(broker.policy())
    market = BurstPrices(prices.on_demand_usd_per_gpu_hour, prices.spot_usd_per_gpu_hour, prices.spot_share_of_burst)
    quotes_with_worth = [(quote, worth_of(quote, demand, plan.held_gpus, market)) for _, quote in quote_result.quotes]
    assessed = [(quote, worth, limits.bars(quote, worth, market.burst)) for quote, worth in quotes_with_worth]
    rejected = [(quote.provider, objection) for quote, _, objection in assessed if objection]
    lines = ladder([(quote, worth) for quote, worth, objection in assessed if not objection])
    saving = [line for line in lines if line.worth.saves.micros > 0]
    best = max(saving, key=lambda line: line.worth.saves, default=None)
    return ProposalResult(
        id=proposal_id([line.quote for line in lines]),
        as_of=plans.as_of,
        demand_from=plans.demand_from,
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
