"""The limits of the active policies on proposals to own or reserve, as sentences with the arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from broker.core.ports import HoldingLimits, PolicySet
from broker.core.values.units import print_duration
from broker.economics.reserve.capacity import PurchaseOption, needed_for
from broker.economics.reserve.holdings import BurstPrices

if TYPE_CHECKING:
    from broker.core.purchases.quotes import CapacityQuote
    from broker.economics.reserve.holdings import RecordedHolding
    from broker.procurement.proposing import QuoteWorth

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
        found, said = self.limits, []
        if found.utilisation is not None:
            said.append(f"GPUs needed in at least {found.utilisation:g}% of the hours")
        if found.horizon is not None:
            said.append(f"terms of at most {print_duration(found.horizon)}")
        if found.break_even is not None:
            said.append(f"break-even at no more than {found.break_even:g}% of the hours")
        if said:
            places = dict.fromkeys(at for name, at in self.at.items() if getattr(found, name) is not None)
            yield f"policies allow holding: {'; '.join(said)} ({', '.join(places)})"

    def sift(
        self, accelerator: str, options: Iterable[PurchaseOption], market: BurstPrices
    ) -> tuple[list[PurchaseOption], list[str]]:
        """The options that may be proposed, and the reasons why others may not."""
        kept, barred = [], []
        for option in options:
            why = self._too_long(option.term * _HOUR) or self._pays_too_late(option.usd, market.burst)
            if why:
                barred.append(f"{accelerator}: not proposed: {option.name}: {why}")
            else:
                kept.append(option)
        return kept, barred

    def left_to_renting(self, accelerator: str, demand: Sequence[int]) -> Iterator[str]:
        """The number of GPUs of the demand that are needed too rarely to be held."""
        if self.limits.utilisation is not None and demand:
            most, peak = needed_for(demand, self.least_use), max(demand)
            if most < peak:
                yield (
                    f"{accelerator}: {peak - most} of {peak} GPUs were needed in less than {self.limits.utilisation:g}%"
                    f" of {len(demand):,} h and are left to renting"
                )

    def bars_renewal(self, recorded: RecordedHolding, usd: float, market: BurstPrices) -> str:
        """Why a holding may not be renewed at its price, ``usd`` per GPU-hour; empty if it may."""
        held = recorded.holding
        why = self._too_long(held.ends - held.starts) or self._pays_too_late(usd, market.burst)
        name = f"{held.kind.value} #{recorded.number} of {held.provider}"
        return f"{held.accelerator}: not renewed at the same price: {name}: {why}" if why else ""

    def bars(self, quote: CapacityQuote, worth: QuoteWorth, rented: float) -> str:
        """Why a quote may not be proposed if a rented GPU-hour costs ``rented`` USD; empty if it may."""
        least = self.limits.utilisation
        why = self._too_long(quote.length) or self._pays_too_late(worth.usd_per_gpu_hour, rented)
        if not why and least is not None and 100 * worth.use < least:
            why = f"{100 * worth.use:.1f}% of its hours would have been used; at least {least:g}% are required"
            why += f" ({self.at['utilisation']})"
        return f"not proposed: {quote.offering}: {why}" if why else ""

    def _too_long(self, term: timedelta) -> str:
        most = self.limits.horizon
        if most is None or term <= most:
            return ""
        beyond = f"its term of {print_duration(term)} is beyond the horizon of {print_duration(most)}"
        return f"{beyond} ({self.at['horizon']})"

    def _pays_too_late(self, held: float, rented: float) -> str:
        most = self.limits.break_even
        if most is None or 100 * held <= most * rented:
            return ""
        return (
            f"${held:.4g} an hour against ${rented:.4g} rented pays from {100 * held / rented:.1f}% of the hours on;"
            f" at most {most:g}% is proposed, so at ${most / 100 * rented:.4g} or less ({self.at['break_even']})"
        )
