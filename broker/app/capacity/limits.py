"""The limits of the active policies on proposals to own or reserve, as sentences with the arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta

from broker.core.ports import HoldingLimits, PolicySet
from broker.core.purchases.quotes import CapacityQuote
from broker.core.values.units import print_duration
from broker.economics.reserve.capacity import PurchaseOption, gpus_needed
from broker.economics.reserve.holdings import BurstPrices, RecordedHolding
from broker.procurement.proposals import QuoteWorth

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CapacityLimits:
    """The limits. ``at``: the place (file and line) of each limit in the policies, by its name."""

    limits: HoldingLimits
    at: Mapping[str, str]

    @classmethod
    def of(cls, policy: PolicySet) -> CapacityLimits:
        """The limits of a set of policies."""
        names = [limit.name for limit in fields(HoldingLimits)]
        at = {name: str(policy.said_at.get(f"holding.{name}", "no policy")) for name in names}
        return cls(policy.defaults.holding, at)

    @property
    def least_use(self) -> float:
        """The share of the hours, 0 to 1, in which a GPU must have been needed."""
        return (self.limits.utilisation or 0.0) / 100

    def notes(self) -> Iterator[str]:
        """The limits in sentences, for a plan."""
        policy_limits, sentences = self.limits, []
        if policy_limits.utilisation is not None:
            sentences.append(f"GPUs needed in at least {policy_limits.utilisation:g}% of the hours")
        if policy_limits.horizon is not None:
            sentences.append(f"terms of at most {print_duration(policy_limits.horizon)}")
        if policy_limits.break_even is not None:
            sentences.append(f"break-even at no more than {policy_limits.break_even:g}% of the hours")
        if sentences:
            places = dict.fromkeys(place for name, place in self.at.items() if getattr(policy_limits, name) is not None)
            yield f"policies allow holding: {'; '.join(sentences)} ({', '.join(places)})"

    def split_options(
        self, accelerator: str, options: Iterable[PurchaseOption], market: BurstPrices
    ) -> tuple[list[PurchaseOption], list[str]]:
        """The options that may be proposed, and the reasons why others may not."""
        allowed, reasons = [], []
        for option in options:
            objection = self._term_objection(option.term * _HOUR) or self._price_objection(option.usd, market.burst)
            if objection:
                reasons.append(f"{accelerator}: not proposed: {option.name}: {objection}")
            else:
                allowed.append(option)
        return allowed, reasons

    def rarely_needed_notes(self, accelerator: str, demand: Sequence[int]) -> Iterator[str]:
        """The number of GPUs of the demand that are needed too rarely to be held."""
        if self.limits.utilisation is not None and demand:
            justified, peak = gpus_needed(demand, self.least_use), max(demand)
            if justified < peak:
                yield (
                    f"{accelerator}: {peak - justified} of {peak} GPUs were needed in less than "
                    f"{self.limits.utilisation:g}%"
                    f" of {len(demand):,} h and are left to renting"
                )

    def renewal_objection(self, recorded: RecordedHolding, usd: float, market: BurstPrices) -> str:
        """Why a holding may not be renewed at its price, ``usd`` per GPU-hour; empty if it may."""
        holding = recorded.holding
        objection = self._term_objection(holding.ends - holding.starts) or self._price_objection(usd, market.burst)
        name = f"{holding.kind.value} #{recorded.number} of {holding.provider}"
        return f"{holding.accelerator}: not renewed at the same price: {name}: {objection}" if objection else ""

    def bars(self, quote: CapacityQuote, worth: QuoteWorth, rented: float) -> str:
        """Why a quote may not be proposed if a rented GPU-hour costs ``rented`` USD; empty if it may."""
        min_use = self.limits.utilisation
        objection = self._term_objection(quote.length) or self._price_objection(worth.usd_per_gpu_hour, rented)
        if not objection and min_use is not None and 100 * worth.use < min_use:
            objection = f"{100 * worth.use:.1f}% of its hours would have been used; at least {min_use:g}% are required"
            objection += f" ({self.at['utilisation']})"
        return f"not proposed: {quote.offering}: {objection}" if objection else ""

    def _term_objection(self, term: timedelta) -> str:
        max_term = self.limits.horizon
        if max_term is None or term <= max_term:
            return ""
        text = f"its term of {print_duration(term)} is beyond the horizon of {print_duration(max_term)}"
        return f"{text} ({self.at['horizon']})"

    def _price_objection(self, holding_price: float, rental_price: float) -> str:
        max_break_even = self.limits.break_even
        if max_break_even is None or 100 * holding_price <= max_break_even * rental_price:
            return ""
        return (
            f"${holding_price:.4g} an hour against ${rental_price:.4g} rented pays from "
            f"{100 * holding_price / rental_price:.1f}% of the hours on;"
            f" at most {max_break_even:g}% is proposed, so at ${max_break_even / 100 * rental_price:.4g} or less "
            f"({self.at['break_even']})"
        )
