"""The worth of a quote, given past use: break-even, saving and regret. Pure.

Prices are USD per GPU and hour. The use is that of GPUs beyond those already held, over the hours of ``demand``.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from broker.core.market.price_basis import PriceBasis
from broker.core.purchases.quotes import CapacityQuote, Undo
from broker.core.values.money import Money
from broker.economics.reserve.holdings import BurstPrices

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class QuoteWorth:
    """The worth of a quote. ``usd_per_gpu_hour``: its price, used or not; ``use``: the share of its GPU-hours that past
    demand would have used. ``break_even``: the use above which it costs less than on-demand capacity,
    ``break_even_spot``: than spot; None without a price. ``saves``: USD compared with on-demand at that use,
    ``saves_spot`` with spot; negative if it costs more. ``regret``: the largest possible loss, without any use (USD),
    ``regret_at_half``: the loss at half that use."""

    usd_per_gpu_hour: float
    use: float
    break_even: float
    break_even_spot: float | None
    saves: Money
    saves_spot: Money | None
    regret: Money
    regret_at_half: Money


@dataclass(frozen=True, slots=True)
class ProposedLine:
    """One line of a proposal: a quote and its worth. ``number``: from 1 on."""

    number: int
    quote: CapacityQuote
    worth: QuoteWorth

    @property
    def ceiling(self) -> Money:
        """The maximum payment: the quoted price."""
        return self.quote.total


def worth_of(quote: CapacityQuote, demand: Sequence[int], held: int, prices: BurstPrices) -> QuoteWorth:
    """``demand``: GPUs needed in each hour; ``held``: GPUs that already serve it."""
    gpus = quote.count * quote.machines
    hours = quote.length / _HOUR
    price = float(quote.total.dollars) / (gpus * hours)
    use_share = sum(min(max(needed - held, 0), gpus) for needed in demand) / (len(demand) * gpus) if demand else 0.0
    gpu_hours = gpus * hours

    def saved(rate: float, use: float) -> Money:
        return Money.usd(f"{use * gpu_hours * rate:.6f}") - quote.total

    def lost(use: float) -> Money:
        return max(-saved(prices.on_demand, use), Money.ZERO)

    spot = prices.spot
    return QuoteWorth(
        usd_per_gpu_hour=price,
        use=use_share,
        break_even=price / prices.on_demand,
        break_even_spot=None if not spot else price / spot,
        saves=saved(prices.on_demand, use_share),
        saves_spot=None if not spot else saved(spot, use_share),
        regret=quote.per_machine_hour * quote.machines if quote.undo is Undo.ANY_TIME else lost(0.0),
        regret_at_half=lost(use_share / 2),
    )


def worth_lines(worth: QuoteWorth, rent: PriceBasis, hours: int) -> Iterator[str]:
    """The worth in sentences for approvers. ``rent``: on demand; ``hours``: of past demand."""
    yield f"rent: {rent.text}"
    ratio = f"${worth.usd_per_gpu_hour:,.3f} / ${rent.usd:,.3f}"
    yield f"break-even: in use for {worth.break_even:.0%} of its hours ({ratio} per GPU-hour)"
    if hours:
        verdict = f"saves {worth.saves.rounded(2)}" if worth.saves.micros > 0 else f"loses {(-worth.saves).rounded(2)}"
        yield f"past demand of {hours:,} h would have used {worth.use:.0%} of it, which {verdict}"
    yield f"regret without any use: {worth.regret.rounded(2)}"


def ladder(lines: Sequence[tuple[CapacityQuote, QuoteWorth]]) -> list[ProposedLine]:
    """The lines by commitment: those that can be undone at any time first, then by price."""
    order = list(reversed(list(Undo)))
    ranked = sorted(lines, key=lambda line: (order.index(line[0].undo), line[0].length, line[0].total))
    return [ProposedLine(number, quote, worth) for number, (quote, worth) in enumerate(ranked, start=1)]


def proposal_id(quotes: Sequence[CapacityQuote]) -> str:
    """The identity of a proposal: a short hash of its quotes, with their times."""
    quote_texts = [quote.model_dump_json() for quote in quotes]
    return hashlib.sha256("\n".join(quote_texts).encode()).hexdigest()[:12]


def purchase_of(proposal: str, line: int) -> str:
    """The part of a purchase's id that names a line of a proposal, so that each line is bought once."""
    return hashlib.sha256(f"{proposal}/{line}".encode()).hexdigest()[:12]
