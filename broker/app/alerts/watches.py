"""Watches on prices: made, listed, and looked at after polls; who is to be told is told by
`broker.app.alerts.notify`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.alerts import notify
from broker.app.market.place_names import check_names
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, UnknownName
from broker.core.market.offers import SANDBOX, Offer
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.notices import Notice
from broker.market.watch_state import WatchFinding, keys, look, step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.store.outbox import Dispatch
    from broker.store.records import Freshness

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_LOOK_EVERY = 15.0  # seconds of the wall clock between two looks of a service
_TRIES = 5  # to move a watch on that others move on, too


@dataclass(frozen=True, slots=True)
class Looked:
    """One look at one watch: what was found, where it stands, and the notice that came of it."""

    watch: Watch
    state: WatchState
    seen: WatchFinding
    notice: Notice | None


@dataclass(frozen=True, slots=True)
class WatchCheck:
    """One look at all of them, and what was sent."""

    looked: tuple[Looked, ...]
    deliveries: tuple[notify.Delivery, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A watch, where it stands, and its notices, newest first."""

    watch: Watch
    state: WatchState
    dispatches: tuple[Dispatch, ...]


def name_for(broker: Broker, watch: Watch) -> str:
    """A name that says what it waits for, and that no other watch has: ``h100-8-spot-below-2.00``."""
    base = re.sub(r"[^a-z0-9.]+", "-", watch.sentence.lower().replace(" per gpu-hour", ""))[:28].strip("-.")
    taken = {other.name for other, _ in broker.store.watches.all()}
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)


def add(broker: Broker, watch: Watch) -> Looked:
    """Keep a watch, and say what there is to see now; nobody is told before the next `check`.

    Raises `InvalidInput` for a name that is taken or none, `UnknownName` for providers, regions and targets that there
    are none of.
    """
    if not _NAME.fullmatch(watch.name):
        expected = "expected up to 60 small letters, digits, dots, dashes and underscores"
        raise InvalidInput(f"{watch.name!r} is no name for a watch; {expected}", where="--name")
    _check_watch(broker, watch)
    if watch.targets:
        notify.chosen(broker.settings.notify, watch.targets)
    seen = _look(broker, watch, broker.clock.now())
    if not broker.store.watches.add(watch):
        raise InvalidInput(
            f"there is a watch of the name {watch.name!r}",
            where="--name",
            hint=f"choose another, or remove it first: gpubroker prices watch remove {watch.name}",
        )
    return Looked(watch, WatchState(), seen, None)


def remove(broker: Broker, name: str) -> None:
    """Forget a watch. What is on its way is still delivered. Raises `UnknownName`."""
    if not broker.store.watches.remove(name):
        raise UnknownName("watch", name, (watch.name for watch, _ in broker.store.watches.all()))


def listed(broker: Broker) -> list[Listed]:
    """Every watch, as it stood when it was last looked at, by name."""
    store = broker.store
    return [Listed(watch, state, tuple(store.outbox.under(keys(watch)))) for watch, state in store.watches.all()]


def check(broker: Broker) -> WatchCheck:
    """Look at every watch, and tell whom it concerns of what began to hold since the last look.

    Any number of processes may do this at once and as often as they like: each change is told once. Raises
    `StoreProblem`, and `MissingExtra` where there is something to send and no Apprise; what is to be told is kept then.
    """
    looked = tuple(_check(broker, watch, state) for watch, state in broker.store.watches.all())
    return WatchCheck(looked, tuple(notify.deliver(broker.store, broker.clock, broker.settings.notify)))


def _check(broker: Broker, watch: Watch, state: WatchState) -> Looked:
    for _ in range(_TRIES):
        now = broker.clock.now()
        seen = _look(broker, watch, now)
        after, notice = step(watch, state, seen, now)
        targets = watch.targets or tuple(broker.settings.notify)
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
        before = _real(watch, [one.offer for one in past])
    return look(watch, offers, before, {}, now)


def _real(watch: Watch, offers: Sequence[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.provider != SANDBOX or SANDBOX in watch.providers]


def _polled(broker: Broker, watch: Watch, now: datetime) -> Mapping[str, Freshness]:
    """The providers that are polled on a schedule. Where the watch names none: not those of this machine, nor those
    that never told anything, for want of a login."""
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
    """The duty of looking at watches and of sending what could not be sent, for `broker.app.service.serve`. Any number
    of processes may have it. ``tell``: told of each notice; ``say``: of trouble, once each time it changes."""

    name = "watching"

    def __init__(
        self, broker: Broker, *, tell: Callable[[Looked | notify.Delivery], None], say: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._tell = tell
        self._say = say

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. A store that is away or locked, or a missing Apprise, is said and tried again."""
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
