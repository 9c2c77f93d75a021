"""Price watches: add, remove, list and check them. `broker.app.alerts.notify` delivers their notices."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.alerts import notify
from broker.app.alerts.routes import recipients
from broker.app.market.offer_rows import check_names
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, UnknownName
from broker.core.market.offers import SANDBOX, Offer
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.market.watch_state import WatchFinding, keys, line, look, lowest, step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.store.outbox import Dispatch
    from broker.store.records import Freshness

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_LOOK_EVERY = 15.0  # seconds of the wall clock between two checks by a service
_CHART, _CHARTED = timedelta(days=7), 50  # period of the line in a notice, and offers that it is drawn from
_TRIES = 5  # to update the state of a watch that other processes update as well


@dataclass(frozen=True, slots=True)
class Looked:
    """The check of one watch: its state after it, what was found (``seen``), and the notice, if any."""

    watch: Watch
    state: WatchState
    seen: WatchFinding
    notice: Notice | None


@dataclass(frozen=True, slots=True)
class WatchCheck:
    """The check of all watches, and the deliveries."""

    looked: tuple[Looked, ...]
    deliveries: tuple[notify.Delivery, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A watch, its state, and its notices, newest first."""

    watch: Watch
    state: WatchState
    dispatches: tuple[Dispatch, ...]


def name_for(broker: Broker, watch: Watch) -> str:
    """A unique name made from the condition of the watch: ``h100-8-spot-below-2.00``."""
    base = re.sub(r"[^a-z0-9.]+", "-", watch.sentence.lower().replace(" per gpu-hour", ""))[:28].strip("-.")
    taken = {other.name for other, _ in broker.store.watches.all()}
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)


def add(broker: Broker, watch: Watch) -> Looked:
    """Store a watch; returns its finding now. Sends nothing before the next `check`. Raises `InvalidInput` for
    an invalid name or one that is taken, `UnknownName` for an unknown provider, region or target."""
    if not _NAME.fullmatch(watch.name):
        expected = "expected up to 60 lower-case letters, digits, dots, dashes and underscores"
        raise InvalidInput(f"{watch.name!r} is not a valid name for a watch; {expected}", where="--name")
    _check_watch(broker, watch)
    if watch.targets:
        notify.chosen(broker.settings.notify, watch.targets)
    seen = _look(broker, watch, broker.clock.now())
    if not broker.store.watches.add(watch):
        raise InvalidInput(
            f"a watch named {watch.name!r} exists already",
            where="--name",
            hint=f"choose another, or remove it first: gpubroker prices watch remove {watch.name}",
        )
    return Looked(watch, WatchState(), seen, None)


def remove(broker: Broker, name: str) -> None:
    """Delete a watch. Its queued notices are still delivered. Raises `UnknownName`."""
    if not broker.store.watches.remove(name):
        raise UnknownName("watch", name, (watch.name for watch, _ in broker.store.watches.all()))


def listed(broker: Broker) -> list[Listed]:
    """Every watch with its state at the last check, by name."""
    store = broker.store
    return [Listed(watch, state, tuple(store.outbox.under(keys(watch)))) for watch, state in store.watches.all()]


def check(broker: Broker) -> WatchCheck:
    """Check every watch, and send notices of conditions that began to hold since the last check. Any number of
    processes may do this at any time: each change causes one notice. Raises `StoreProblem`, and `MissingExtra` if a
    notice is due and Apprise is not installed; the notice is kept then."""
    looked = tuple(_check(broker, watch, state) for watch, state in broker.store.watches.all())
    return WatchCheck(looked, tuple(_delivered(broker)))


def _delivered(broker: Broker) -> list[notify.Delivery]:
    return notify.deliver(broker.store, broker.clock, broker.settings.notify)


def _check(broker: Broker, watch: Watch, state: WatchState) -> Looked:
    for _ in range(_TRIES):
        now = broker.clock.now()
        seen = _look(broker, watch, now)
        after, notice = step(watch, state, seen, now)
        if notice is not None and (drawn := _chart(broker, watch, now)):
            after, notice = step(watch, state, replace(seen, details=(*seen.details, drawn)), now)
        everybody = () if notice is None else recipients(broker.settings, notice)
        targets = watch.targets or everybody
        if broker.store.watches.move(watch, state, after, notice=notice, targets=targets, at=now):
            return Looked(watch, after, seen, notice)
        current = next((s for other, s in broker.store.watches.all() if other == watch), None)
        if current is None:  # removed meanwhile
            break
        state = current
    return Looked(watch, state, seen, None)


def _look(broker: Broker, watch: Watch, now: datetime) -> WatchFinding:
    if watch.trigger is Trigger.STALE:
        return look(watch, (), (), _polled(broker, watch, now), now)
    offers = _real(watch, broker.store.offers(watch.query))
    before: list[Offer] = []
    if watch.within is not None:
        past = broker.store.market.offers_at(now - watch.within, query=watch.query)
        before = _real(watch, past)
    return look(watch, offers, before, {}, now)


def _chart(broker: Broker, watch: Watch, now: datetime) -> str:
    """A line chart, as text, of the lowest price of the watched offers over the last week, or since it is known; empty
    without prices."""
    if watch.trigger is Trigger.STALE:
        return ""
    priced = [
        offer
        for offer in _real(watch, broker.store.offers(watch.query))
        if watch.fits(offer) and not offer.reference and offer.doubt is None and offer.has_valid_price()
    ]
    cheapest = sorted(priced, key=lambda offer: (offer.price_per_gpu or offer.price or Money.ZERO, offer.id))[:_CHARTED]
    series = broker.store.market.price_series_of(cheapest, now - _CHART, now)
    steps = [
        [(point.at, None if point.price is None else point.price.share(1, offer.count or 1)) for point in points]
        for offer in cheapest
        if (points := series.get(offer.id))
    ]
    units = {"GPU" if offer.count else "machine" for offer in cheapest}
    per = f"{' or '.join(sorted(units))}-hour"
    start = max(now - _CHART, min((points[0][0] for points in steps), default=now))
    return line(lowest(steps, start, now), now - start, per)


def _real(watch: Watch, offers: Sequence[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.provider != SANDBOX or SANDBOX in watch.providers]


def _polled(broker: Broker, watch: Watch, now: datetime) -> Mapping[str, Freshness]:
    """The freshness of the providers. If the watch names none: of all but local providers and those that were never
    polled successfully, such as providers without a login."""
    found = broker.store.market.freshness(now)
    if watch.providers:
        return found
    local = {*broker.registries.local_providers, SANDBOX}
    return {name: one for name, one in found.items() if name not in local and one.last_success is not None}


def _check_watch(broker: Broker, watch: Watch) -> None:
    if watch.trigger is not Trigger.STALE:
        check_names(broker, watch.query, broker.store.offers(watch.query))
        return
    known = {*broker.registries.providers, *broker.store.market.freshness(broker.clock.now())}
    for pattern in watch.providers:
        if not any(replace(watch, providers=(pattern,)).fits_provider(name) for name in known):
            raise UnknownName("provider", pattern, known)


class Watching:
    """The duty of `broker.app.service.duties` that checks watches and delivers notices. Any number of processes may run
    it. ``tell``: receives each notice and delivery; ``say``: receives each error once."""

    name = "watching"

    def __init__(
        self, broker: Broker, *, tell: Callable[[Looked | notify.Delivery], None], say: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._tell = tell
        self._say = say

    def run(self, stop: threading.Event) -> None:
        """Check until ``stop`` is set. Errors of the store, or a missing Apprise, are reported and tried again."""
        said = ""
        while not stop.wait(_LOOK_EVERY):
            try:
                checked = check(self._broker)
            except BrokerError as error:
                if said != str(error):
                    said = str(error)
                    self._say(said)
                continue
            said = ""
            for one in checked.looked:
                if one.notice is not None:
                    self._tell(one)
            for delivery in checked.deliveries:
                self._tell(delivery)
