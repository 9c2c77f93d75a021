"""Findings from actual use of owned, reserved and rented GPUs: buy, reserve, stop renting, over-committed. Pure.

Thresholds are the field's rules of thumb (`Assumptions`, which a policy file may replace); each finding has its
arithmetic, so that it can be checked by hand. Hours are whole, the last one is the one before now; prices are USD per
GPU-hour. A GPU that is needed in a share s of the hours is worth holding at up to s times the price of renting (the
level rule of baseline and burst). Owned GPUs pay for energy in working hours. Their idle power is ignored: it is rarely
known, and would only make owning more expensive.

Holdings are judged on the hours since their start, from a week on; further holdings on all hours.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import Cents, Figure
from broker.economics.units import HOURS_PER_MONTH

SHORTEST = 168  # minimum hours of use for a finding: a week


class FindingKind(StrEnum):
    """The recommended action."""

    BUY = "buy"
    RESERVE = "reserve"
    STOP_RENTING = "stop_renting"
    OVER_COMMITTED = "over_committed"
    RENT_INSTEAD = "rent_instead"


@dataclass(frozen=True, slots=True)
class AcceleratorUse:
    """One accelerator's hours: ``demand``: all working GPUs, ``rented``: those on demand or spot. ``owned`` and
    ``reserved``: GPUs held now; commitments count as reserved. ``owned_for`` and ``reserved_for``: for how many of the
    last hours each was held, longest first; None: all.

    Prices: ``rent`` of a burst; ``held_usd``: a reserved GPU, used or not; ``reserve_usd``: a new reservation;
    ``own_usd``: owning one over its life, used or not. None if unknown. ``reserve_lot``: GPUs of the machine that is
    reserved. ``energy_usd``: an owned one's extra cost per
    working hour. ``term_hours``: duration of a reservation at ``reserve_usd``.
    """

    accelerator: str
    demand: Sequence[int]
    rented: Sequence[int]
    owned: int
    reserved: int
    rent: float
    held_usd: float | None = None
    reserve_usd: float | None = None
    own_usd: float | None = None
    reserve_lot: int = 1
    term_hours: float | None = None
    owned_for: Sequence[int] | None = None
    reserved_for: Sequence[int] | None = None
    energy_usd: float = 0.0

    def __post_init__(self) -> None:
        if len(self.demand) != len(self.rented) or not self.demand:
            raise InvalidInput(f"{self.accelerator}: expected as many hours of rented GPUs as of all GPUs")
        if any(not 0 <= rented <= total for rented, total in zip(self.rented, self.demand, strict=True)):
            raise InvalidInput(f"{self.accelerator}: expected between 0 and all of the GPUs at work to be rented")
        if self.rent <= 0 or min(self.owned, self.reserved) < 0:
            raise InvalidInput(f"{self.accelerator}: expected a rent above 0 and counts of 0 or more")
        if (len(self.owned_hours), len(self.reserved_hours)) != (self.owned, self.reserved):
            raise InvalidInput(f"{self.accelerator}: expected the hours of every held GPU, or of none")

    @property
    def held(self) -> int:
        """Held GPUs, used or not."""
        return self.owned + self.reserved

    @property
    def owned_hours(self) -> Sequence[int]:
        """For how many hours each owned GPU was held: all hours of the demand, unless stated."""
        return [len(self.demand)] * self.owned if self.owned_for is None else self.owned_for

    @property
    def reserved_hours(self) -> Sequence[int]:
        """For how many hours each reserved GPU was held: all hours of the demand, unless stated."""
        return [len(self.demand)] * self.reserved if self.reserved_for is None else self.reserved_for


@dataclass(frozen=True, slots=True)
class CapacityFinding:
    """A recommendation on ``gpus`` GPUs. ``sentence``: the advice; ``saves_usd_per_month``: null if a price is unknown;
    ``arithmetic``: each figure by name; ``because``: the calculation in words."""

    kind: FindingKind
    accelerator: str
    gpus: int
    sentence: str
    because: str
    saves_usd_per_month: Cents | None = None
    arithmetic: dict[str, Figure] = field(default_factory=dict)


def findings(use: AcceleratorUse, assumptions: Assumptions = DEFAULTS) -> tuple[CapacityFinding, ...]:
    """All findings, largest first. None from less than a week of hours: that allows no conclusion about years."""
    if len(use.demand) < SHORTEST:
        return ()
    all_findings = [
        *_stop_renting(use, assumptions),
        *_over_committed(use),
        *_rent_instead(use, assumptions),
        *_hold_more(use, assumptions),
    ]
    return tuple(sorted(all_findings, key=lambda finding: (-(finding.saves_usd_per_month or 0.0), finding.kind)))


def share_at(demand: Sequence[int], level: int) -> float:
    """The share of hours in which at least ``level`` GPUs worked."""
    return sum(gpus >= level for gpus in demand) / len(demand)


def _levels(demand: Sequence[int], first: int, last: int) -> Iterable[tuple[int, float]]:
    """Each GPU from ``first`` to ``last`` and the share of the hours in which it was needed."""
    hours, ordered = len(demand), sorted(demand)
    return ((level, (hours - bisect_left(ordered, level)) / hours) for level in range(first, last + 1))


def _needed_shares(demand: Sequence[int], ages: Sequence[int], below: int) -> list[float]:
    """For each GPU, the share of its hours in which demand exceeded the ``below`` GPUs before it; without GPUs held for
    less than a week.
    """
    return [share_at(demand[-age:], level) for level, age in enumerate(ages, start=below + 1) if age >= SHORTEST]


def _stop_renting(use: AcceleratorUse, assumptions: Assumptions) -> Iterable[CapacityFinding]:
    """GPUs that were rented while as many held ones were idle, in more hours than tolerated. Counts the hours with
    holdings, each with the holdings of that hour.
    """
    ages = sorted((*use.owned_hours, *use.reserved_hours))
    hours = ages[-1] if ages else 0
    if hours < SHORTEST:
        return
    pairs = zip(use.demand[-hours:], use.rented[-hours:], strict=True)
    held_by_hour = [len(ages) - bisect_left(ages, hours_ago) for hours_ago in range(hours, 0, -1)]
    needless = [
        min(max(held - (total - rented), 0), rented) for held, (total, rented) in zip(held_by_hour, pairs, strict=True)
    ]
    max_needless = max(needless, default=0)
    gpus = max(
        (n for n, hour_share in _levels(needless, 1, max_needless) if hour_share >= assumptions.idle_hours_below),
        default=0,
    )
    if not gpus:
        return
    gpu_hours = sum(min(n, gpus) for n in needless)
    usd_per_month = gpu_hours * use.rent * HOURS_PER_MONTH / hours
    yield CapacityFinding(
        FindingKind.STOP_RENTING,
        use.accelerator,
        gpus,
        f"stop renting {gpus} {use.accelerator}: {use.held} are held, and some of them were idle meanwhile",
        f"in {hours} h, {gpu_hours} GPU-hours were rented at {_price(use.rent)} while as many held GPUs were idle:"
        f" {gpu_hours} × {_price(use.rent)} × {HOURS_PER_MONTH:g} h / {hours} h = ${usd_per_month:,.2f} a month",
        usd_per_month,
        _figures(
            use,
            gpus,
            usd_per_month,
            held=use.held,
            hours=hours,
            needless_gpu_hours=gpu_hours,
            needless_usd=gpu_hours * use.rent,
        ),
    )


def _over_committed(use: AcceleratorUse) -> Iterable[CapacityFinding]:
    """Reserved GPUs needed in a smaller share of hours than the ratio of their price to renting. Owned ones come first:
    they are paid for, and reserved ones serve the rest.
    """
    if not use.reserved or use.held_usd is None or use.held_usd <= 0:
        return
    ratio = use.held_usd / use.rent
    rarely_needed = [
        need_share for need_share in _needed_shares(use.demand, use.reserved_hours, use.owned) if need_share < ratio
    ]
    if not rarely_needed:
        return
    gpus, used = len(rarely_needed), sum(rarely_needed) / len(rarely_needed)
    saves = sum(use.held_usd - need_share * use.rent for need_share in rarely_needed) * HOURS_PER_MONTH
    yield CapacityFinding(
        FindingKind.OVER_COMMITTED,
        use.accelerator,
        gpus,
        f"over-committed by {gpus} {use.accelerator}: let {'it' if gpus == 1 else 'them'} lapse when the term ends",
        f"the last {gpus} of {use.reserved} reserved GPUs were needed in {used:.1%} of the hours; at"
        f" {_price(use.held_usd)} an hour reserved and {_price(use.rent)} rented, a reservation saves money only above"
        f" {ratio:.1%}: {gpus} × {HOURS_PER_MONTH:g} h × ({_price(use.held_usd)} − {used:.1%} × {_price(use.rent)})"
        f" = ${saves:,.2f} a month",
        saves,
        _figures(
            use, gpus, saves, reserved=use.reserved, used_share=used, pays_from_share=ratio, held_usd=use.held_usd
        ),
    )


def _rent_instead(use: AcceleratorUse, assumptions: Assumptions) -> Iterable[CapacityFinding]:
    """Owned GPUs that are needed for so few hours a day that renting is cheaper: do not replace them at their end."""
    rarely_needed = [
        need_share
        for need_share in _needed_shares(use.demand, use.owned_hours, 0)
        if need_share * 24 < assumptions.rent_below_hours_per_day
    ]
    if not rarely_needed:
        return
    gpus, need_share = len(rarely_needed), sum(rarely_needed) / len(rarely_needed)
    saves, calculation = None, ""
    if use.own_usd is not None:
        saves = sum(use.own_usd - share * (use.rent - use.energy_usd) for share in rarely_needed) * HOURS_PER_MONTH
        if saves <= 0:
            return  # renting even these few hours would cost more
        power = f" + {need_share:.1%} × {_price(use.energy_usd)} energy" if use.energy_usd else ""
        calculation = (
            f", here: {gpus} × {HOURS_PER_MONTH:g} h × ({_price(use.own_usd)} used or not{power} − {need_share:.1%} ×"
            f" {_price(use.rent)} rented) = ${saves:,.2f} a month"
        )
    yield CapacityFinding(
        FindingKind.RENT_INSTEAD,
        use.accelerator,
        gpus,
        f"rent instead of {gpus} owned {use.accelerator}: do not replace {'it' if gpus == 1 else 'them'}",
        f"the last {gpus} of {use.owned} owned were needed for {need_share * 24:.1f} h a day ({need_share:.1%}); below"
        f" {assumptions.rent_below_hours_per_day:g} h a day renting is cheaper as a rule{calculation}",
        saves,
        _figures(
            use, gpus, saves, owned=use.owned, used_share=need_share, hours_per_day=need_share * 24,
            rent_below_hours_per_day=assumptions.rent_below_hours_per_day, own_usd=use.own_usd,
            energy_usd=use.energy_usd,
        ),
    )  # fmt: skip


def _hold_more(use: AcceleratorUse, assumptions: Assumptions) -> Iterable[CapacityFinding]:
    """GPUs beyond the held ones that are needed often enough to be held: bought if they run for years, else
    reserved."""
    peak, hours = max(use.demand), len(use.demand)
    unheld = list(_levels(use.demand, use.held + 1, peak))
    to_buy = [need_share for _, need_share in unheld if need_share * 24 > assumptions.buy_above_hours_per_day]
    if use.own_usd is not None:
        to_buy = [need_share for need_share in to_buy if use.own_usd < need_share * (use.rent - use.energy_usd)]
        buy_finding = _hold_more_finding(FindingKind.BUY, use, to_buy, use.own_usd, "over their life", use.energy_usd)
    else:
        buy_finding = _hold_more_finding(
            FindingKind.BUY, use, [s for s in to_buy if s >= assumptions.buy_above_utilization], None, ""
        )
    # Of two ways to hold the same GPU, the one that saves more. Machines are reserved whole.
    lot, worth_reserving = use.reserve_lot, list[float]()
    for first in range(0, len(unheld), lot):
        shares = [need_share for _, need_share in unheld[first : first + lot]]
        if use.reserve_usd is not None and lot * use.reserve_usd < sum(shares) * use.rent:
            worth_reserving += [*shares, *[0.0] * (lot - len(shares))]
    is_known = use.term_hours is None or hours >= use.term_hours / 4
    reserve_finding = (
        _hold_more_finding(FindingKind.RESERVE, use, worth_reserving, use.reserve_usd, "used or not")
        if is_known
        else None
    )
    candidates = [finding for finding in (buy_finding, reserve_finding) if finding is not None]
    if buy_finding is not None and reserve_finding is not None and buy_finding.saves_usd_per_month is not None:
        candidates = [max(candidates, key=lambda finding: finding.saves_usd_per_month or 0.0)]
    yield from candidates


def _hold_more_finding(
    kind: FindingKind, use: AcceleratorUse, shares: Sequence[float], usd: float | None, basis: str, energy: float = 0.0
) -> CapacityFinding | None:
    """``usd``: cost of one, used or not; ``energy``: extra cost per working hour."""
    if not shares:
        return None
    gpus, need_share = len(shares), sum(shares) / len(shares)
    verb = "buy" if kind is FindingKind.BUY else "reserve"
    because = (
        f"beyond the {use.held} held, {gpus} more were needed for {need_share * 24:.1f} h a day ({need_share:.1%})"
    )
    saves, prices = None, dict[str, float | None]()
    if usd is not None:
        net = need_share * (use.rent - energy) - usd
        saves = gpus * HOURS_PER_MONTH * net
        power = f" + {need_share:.1%} × {_price(energy)} energy" if energy else ""
        because += (
            f": rented {need_share:.1%} × {_price(use.rent)} = {_price(need_share * use.rent)} an hour each, {verb}"
            f" {_price(usd)} {basis}{power}; {gpus} × {HOURS_PER_MONTH:g} h × {_price(net)} = ${saves:,.2f} a month"
        )
        prices = {f"{verb}_usd": usd, "energy_usd": energy} if kind is FindingKind.BUY else {f"{verb}_usd": usd}
    else:
        because += "; add a price of owning to compute the saving: `gpubroker capacity add owned`"
    figures = _figures(use, gpus, saves, held=use.held, used_share=need_share, hours_per_day=need_share * 24, **prices)
    return CapacityFinding(kind, use.accelerator, gpus, f"{verb} {gpus} {use.accelerator}", because, saves, figures)


def _price(usd: float) -> str:
    """The price of an hour: ``$2.50``; ``$0.1234`` if it is no number of cents."""
    return f"${usd:.2f}" if round(usd, 2) == round(usd, 4) else f"${usd:.4f}"


def _figures(use: AcceleratorUse, gpus: int, saves: float | None, **extra: float | None) -> dict[str, float]:
    """The figures of a finding: common ones and ``more``; unknown ones are left out."""
    figures = {"gpus": gpus, **extra, "rent_usd": use.rent}
    if saves is not None:
        figures |= {"hours_per_month": HOURS_PER_MONTH, "usd_per_month": saves}
    return {name: figure for name, figure in figures.items() if figure is not None}
