"""Evaluates watches, and decides when an alert is due, with the lowest price over time as one line of text. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.market.offers import Availability, Offer
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.notices import Notice, Severity
from broker.core.values.money import Money, round_distinct
from broker.core.values.units import print_duration

if TYPE_CHECKING:
    from broker.store.records import Freshness


_SOLD_OUT = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
_LISTED = 3  # offers in the text of an alert
_NEAR = 1.05  # times the price that is watched for
_ALL = ("",)  # for watches that are not about single providers


@dataclass(frozen=True, slots=True)
class WatchFinding:
    """A finding.

    ``holds``: the subjects for which the watch's condition holds (see `WatchState.firing`); empty if for none, None if
    unknown. ``near``: whether it fails so narrowly that one that held goes on: prices that move around a limit are one
    alert, not many. ``words``: the finding in a line; ``details``: text for the alert.
    """

    holds: tuple[str, ...] | None
    words: str
    details: tuple[str, ...] = ()
    near: bool = False


def evaluate(
    watch: Watch,
    offers: Iterable[Offer],
    before: Iterable[Offer],
    fresh: Mapping[str, Freshness],
    now: datetime,
) -> WatchFinding:
    """The finding of a watch.

    ``offers``: current ones; ``before``: those of ``watch.within`` ago, for rises; ``fresh``: by provider, for
    staleness. Ignores offers that do not match, simulated ones unless requested, reference prices, and offers past
    their age limit.
    """
    if watch.trigger is Trigger.STALE:
        return _stale(watch, fresh, now)
    offers = tuple(offers)
    live = _live(watch, offers)
    believed = [offer for offer in live if offer.doubt is None]
    current = [offer for offer in believed if offer.max_age is None or now - offer.as_of <= offer.max_age]
    if not live:
        has_list_prices = any(watch.fits(offer) for offer in offers)
        return WatchFinding((), "only list prices, which watches ignore" if has_list_prices else "none is offered")
    if not believed:
        return WatchFinding(None, "every offer is suspicious: see `gpubroker offers --where price_kind=suspicious`")
    if not current:
        return WatchFinding(None, "every offer is older than its provider's limit")
    match watch.trigger:
        case Trigger.AVAILABLE:
            return _available(current)
        case Trigger.BELOW:
            return _below(watch, current)
        case Trigger.RISES:
            return _rises(watch, current, _live(watch, before))


def _live(watch: Watch, offers: Iterable[Offer]) -> list[Offer]:
    return [offer for offer in offers if watch.fits(offer) and not offer.reference]


def _unit_price(offer: Offer) -> Money:
    price = offer.price_per_gpu or offer.price
    assert price is not None
    return price


def _purchasable(offers: Iterable[Offer]) -> list[Offer]:
    """Available offers with a price, cheapest first."""
    matches = [offer for offer in offers if offer.has_valid_price() and offer.availability not in _SOLD_OUT]
    return sorted(matches, key=lambda offer: (_unit_price(offer), offer.id))


def _below(watch: Watch, offers: Sequence[Offer]) -> WatchFinding:
    purchasable = _purchasable(offers)
    if not purchasable:
        return WatchFinding((), "sold out")
    assert watch.price is not None
    cheap_enough = [offer for offer in purchasable if _unit_price(offer) < watch.price]
    words, near = f"cheapest: {_offer_text(purchasable[0])}", _unit_price(purchasable[0]) < watch.price.scaled(_NEAR)
    return WatchFinding(_ALL if cheap_enough else (), words, _lines(cheap_enough), near)


def _rises(watch: Watch, offers: Sequence[Offer], before: Sequence[Offer]) -> WatchFinding:
    purchasable, earlier = _purchasable(offers), _purchasable(before)
    ago = print_duration(watch.within or timedelta(0))
    if not purchasable:
        return WatchFinding(None, "sold out: there is no price to compare")
    if not earlier or not _unit_price(earlier[0]):
        return WatchFinding(None, f"no price from {ago} ago is known")
    current_price, earlier_price = _unit_price(purchasable[0]), _unit_price(earlier[0])
    change = current_price.micros / earlier_price.micros - 1
    words = f"{change:+.1%} in {ago}, from {earlier_price}; cheapest: {_offer_text(purchasable[0])}"
    part = watch.part or 0  # a float, and 12 / 10 - 1 < 0.2: exact by `scaled`
    has_risen, near = (current_price >= earlier_price.scaled(1 + share) for share in (part, part / 2))
    return WatchFinding(_ALL if has_risen else (), words, _lines(purchasable), near)


def _available(offers: Sequence[Offer]) -> WatchFinding:
    available = [offer for offer in offers if offer.availability is Availability.AVAILABLE]
    if available:
        ranked = sorted(
            available, key=lambda offer: (not offer.has_valid_price(), _unit_price_or_zero(offer), offer.id)
        )
        return WatchFinding(_ALL, f"available: {_offer_text(ranked[0])}", _lines(ranked))
    if any(offer.availability in _SOLD_OUT for offer in offers):
        return WatchFinding((), "sold out")
    return WatchFinding(None, "its providers do not report availability")


def _unit_price_or_zero(offer: Offer) -> Money:
    return _unit_price(offer) if offer.has_valid_price() else Money.ZERO


def _stale(watch: Watch, fresh: Mapping[str, Freshness], now: datetime) -> WatchFinding:
    age = watch.age or timedelta(0)
    stale = []
    for name in sorted(fresh):
        last_success = fresh[name].last_success
        if watch.fits_provider(name) and (last_success is None or now - last_success > age):
            stale.append(name)
    if not any(watch.fits_provider(name) for name in fresh):
        return WatchFinding(None, "never polled")
    if not stale:
        return WatchFinding((), "fresh")
    polls = tuple(_poll_text(fresh[name], now) for name in stale)
    if len(polls) == 1:
        return WatchFinding(tuple(stale), polls[0])
    return WatchFinding(tuple(stale), f"no successful poll of {', '.join(stale)}", polls)


def _poll_text(freshness: Freshness, now: datetime) -> str:
    last_success = "never" if freshness.last_success is None else f"{_ago(now - freshness.last_success)} ago"
    first, *others = (freshness.last.error if freshness.last is not None else "").splitlines() or [""]
    reason = f": {first}" if first else ""
    more = f"; and {len(others)} more" if others else ""
    return f"{freshness.provider}: last successful poll {last_success}{reason}{more}"


def _ago(age: timedelta) -> str:
    return print_duration(timedelta(minutes=max(age // timedelta(minutes=1), 0)))


def _offer_text(offer: Offer) -> str:
    unit = "per GPU-hour" if offer.count else "per hour"
    price = f"{_unit_price(offer)} {unit}, " if offer.has_valid_price() else ""
    kind = offer.capacity_type.value.replace("_", "-")
    return f"{price}{offer.provider} {offer.zone or offer.region} {offer.instance_type} {offer.machine} {kind}"


def _lines(offers: Sequence[Offer]) -> tuple[str, ...]:
    lines = [
        f"{_offer_text(offer)} (by {offer.source}, {offer.as_of:%Y-%m-%d %H:%M} UTC)" for offer in offers[:_LISTED]
    ]
    more = len(offers) - len(lines)
    return (*lines, f"and {more} more") if more else tuple(lines)


def step(watch: Watch, state: WatchState, finding: WatchFinding, now: datetime) -> tuple[WatchState, Notice | None]:
    """The new state of the watch, and the alert that is due, if any.

    An alert is due when a condition begins to hold, and at least ``watch.pause`` after the last alert: a condition
    that began within the pause and still holds is reported then. Unknown findings change nothing. The same state and
    finding give the same alert and key.
    """
    updated = replace(state, seen=finding.words, known=finding.holds is not None, checked_at=now)
    if finding.holds is None:
        return updated, None
    still_firing = tuple(name for name in state.firing if finding.near or name in finding.holds)
    newly_firing = [name for name in finding.holds if name not in still_firing]
    is_paused = state.noticed_at is not None and timedelta(0) <= now - state.noticed_at < watch.pause
    if not newly_firing or is_paused:
        return replace(updated, firing=still_firing, since=state.since if still_firing == state.firing else now), None
    after = replace(updated, firing=finding.holds, since=now, noticed_at=now, number=state.number + 1)
    return after, _notice(watch, after, finding)


def _notice(watch: Watch, state: WatchState, finding: WatchFinding) -> Notice:
    body = [finding.words, *finding.details, "", f"Watch {watch.name!r} by {watch.made_by}."]
    body.append(f"To stop these alerts: gpubroker prices watch remove {watch.name}")
    return Notice(
        key=f"{key_prefix(watch)}{state.number}",
        title=f"gpubroker: {watch.sentence}",
        body="\n".join(body),
        severity=Severity.WARNING if watch.trigger in (Trigger.RISES, Trigger.STALE) else Severity.INFO,
    )


def key_prefix(watch: Watch) -> str:
    """The prefix of the keys of its alerts. A watch created again under the same name has another one."""
    return f"watch/{watch.name}/{watch.made_at.isoformat()}/"


_BARS = "▁▂▃▄▅▆▇█"
_STEPS = 28  # characters of a line: for a week, six hours each
_NONE = "·"  # no price is known for that time

PriceSteps = Sequence[tuple[datetime, Money | None]]
"""The price from each time on, oldest first; None: not offered from then on."""


def lowest_prices(series: Iterable[PriceSteps], start: datetime, end: datetime) -> list[Money | None]:
    """The lowest of these prices at the end of each of `_STEPS` equal parts of the time; None where none is known."""
    indexed = [(list(map(_time, points)), points) for points in series]
    lows: list[Money | None] = []
    for step in range(1, _STEPS + 1):
        moment = start + (end - start) * (step / _STEPS)
        prices = [points[place - 1][1] for times, points in indexed if (place := bisect_right(times, moment))]
        lows.append(min((price for price in prices if price is not None), default=None))
    return lows


def _time(point: tuple[datetime, Money | None]) -> datetime:
    return point[0]


def sparkline(prices: Sequence[Money | None], period: timedelta, per: str = "GPU-hour") -> str:
    """``lowest, last 7 d: ▂▂▃▅█ $1.90 to $2.40 per GPU-hour``, in 80 columns; empty if fewer than two prices are known.

    Each bar shows a price on the scale from the lowest to the highest of the line; equal prices give low bars. ``per``:
    the unit that the prices are for.
    """
    priced = [price for price in prices if price is not None]
    if len(priced) < 2:
        return ""
    low, high = min(priced), max(priced)
    spread = high.micros - low.micros
    bars = "".join(
        _NONE if price is None else _BARS[(price.micros - low.micros) * (len(_BARS) - 1) // (spread or 1)]
        for price in prices
    )
    return f"lowest, last {_length(period)}: {bars} {' to '.join(round_distinct(low, high))} per {per}"


def _length(period: timedelta) -> str:
    for unit, size in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))):
        if period >= size:
            return f"{period // size} {unit}"
    return f"{period // timedelta(seconds=1)} s"
