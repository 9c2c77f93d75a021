"""The ladder from spot over reservations and blocks to commitments, line by line, by hand.

On demand costs $10 and spot $2.50 per GPU-hour; 16 GPUs were needed in six of ten hours.
"""

from datetime import timedelta

import pytest

from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, Undo
from broker.core.values.money import Money
from broker.economics.reserve.holdings import BurstPrices
from broker.procurement.proposals import QuoteWorth, ladder, worth_of
from tests.core.purchases.test_purchase_steps import QUOTE

PRICES, DEMAND = BurstPrices(10.0, 2.5, 0.0), [16] * 6 + [0] * 4


def quote(product: PurchaseProduct, machines: int, hours: int, total: str, undo: Undo) -> CapacityQuote:
    ends = QUOTE.starts + timedelta(hours=hours)
    figures = {"machines": machines, "ends": ends, "total": Money.usd(total), "undo": undo}
    return QUOTE.model_copy(update={"product": product, **figures})


RESERVED = quote(PurchaseProduct.CAPACITY_RESERVATION, 1, 48, "3840", Undo.ANY_TIME)  # 8 × 48 h at $10
BLOCK = quote(PurchaseProduct.CAPACITY_BLOCK, 2, 48, "3072", Undo.NONE)  # 16 × 48 h at $4
COMMITTED = quote(PurchaseProduct.COMMITMENT, 1, 8760, "140160", Undo.NONE)  # 8 × 8,760 h at $2
LINES = {
    # 0.6 × 384 h × $10 − $3,840; it can be ended after an hour of $80; 0.3 × 384 h × $10 less it
    RESERVED: (10.0, 1.0, 4.0, "-1536", "-3264", "80", "2688"),
    # 0.6 × 768 h × $10 − $3,072; 0.6 × 768 h × $2.50 − $3,072; all of it; $3,072 − 0.3 × 768 h × $10
    BLOCK: (4.0, 0.4, 1.6, "1536", "-1920", "3072", "768"),
    # 0.6 × 70,080 h × $10 − $140,160; 0.6 × 70,080 h × $2.50 − $140,160; all of it; half the use pays it
    COMMITTED: (2.0, 0.2, 0.8, "280320", "-35040", "140160", "0"),
}


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line.product))
def test_each_line_is_worth_what_it_comes_to_by_hand(line: CapacityQuote) -> None:
    rate, break_even, of_spot, saves, saves_spot, regret, at_half = LINES[line]
    assert worth_of(line, DEMAND, 0, PRICES) == QuoteWorth(
        usd_per_gpu_hour=rate,
        use=0.6,
        break_even=break_even,
        break_even_spot=of_spot,
        saves=Money.usd(saves),
        saves_spot=Money.usd(saves_spot),
        regret=Money.usd(regret),
        regret_at_half=Money.usd(at_half),
    )


def test_what_is_held_already_is_not_bought_again() -> None:
    assert worth_of(BLOCK, DEMAND, 8, PRICES).use == pytest.approx(0.3)
    assert worth_of(BLOCK, DEMAND, 16, PRICES).saves == -BLOCK.total


def test_the_least_committed_comes_first() -> None:
    rungs = ladder([(one, worth_of(one, DEMAND, 0, PRICES)) for one in (COMMITTED, BLOCK, RESERVED)])
    assert [(one.number, one.quote) for one in rungs] == [(1, RESERVED), (2, BLOCK), (3, COMMITTED)]
