"""Price watches: add, remove, list and check them. `broker.app.alerts.notify` delivers their notices."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from broker.app.alerts import notify
from broker.app.alerts.notify import Delivery, Targets, redact_address, setting_variable
from broker.app.alerts.routes import recipients
from broker.app.documents import Figure, Moment, Result, Seconds
from broker.app.market.offer_rows import OfferFilter, check_names
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, UnknownName
from broker.core.market.offers import SANDBOX, CapacityType, Offer
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.market.watch_state import WatchFinding, evaluate, key_prefix, lowest_prices, sparkline, step
from broker.store.outbox import Dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.store.records import Freshness


class QueuedAlert(Result):
    """An alert to one recipient. ``next_try``: null once it was delivered or given up."""

    target: str
    status: Literal["delivered", "given_up", "waiting"]
    made_at: Moment
    delivered_at: Moment | None
    tries: int
    next_try: Moment | None
    error: str

    @classmethod
    def of(cls, dispatch: Dispatch) -> Self:
        return cls.from_parts(
            dispatch, status="delivered" if dispatch.delivered_at else "given_up" if dispatch.given_up else "waiting"
        )


class WatchResult(Result):
    """A watch and its state. ``holds``: null where it could not be evaluated; ``holds_for``: the providers that it
    holds for, of a watch on polls; ``rises_by``: a fraction."""

    name: str
    waits_for: str
    trigger: Trigger
    machines: list[str]
    providers: list[str]
    regions: list[str]
    capacity_types: list[CapacityType]
    price_per_gpu_hour: Money | None
    rises_by: Figure | None
    within_seconds: Seconds | None
    stale_after_seconds: Seconds | None
    targets: list[str]
    pause_seconds: Seconds
    made_at: Moment
    made_by: str
    holds: bool | None
    holds_for: list[str]
    seen: str
    since: Moment | None
    checked_at: Moment | None
    noticed_at: Moment | None
    notices: int
    deliveries: list[QueuedAlert]

    @classmethod
    def of(cls, watch: Watch, state: WatchState, dispatches: Sequence[Dispatch] = (), **extra: Any) -> Self:
        return cls.from_parts(
            watch,
            state,
            waits_for=watch.sentence,
            price_per_gpu_hour=watch.price,
            rises_by=watch.part,
            within_seconds=watch.within,
            stale_after_seconds=watch.age,
            pause_seconds=watch.pause,
            holds=bool(state.firing) if state.known else None,
            holds_for=[name for name in state.firing if name],
            notices=state.number,
            deliveries=dispatches,
            **extra,
        )


class AddedWatch(WatchResult):
    """A watch that was added. ``now``: the present state in words; ``holds_now``: whether its condition holds, so that
    the first check sends an alert; null if unknown."""

    now: str
    holds_now: bool | None

    @classmethod
    def of_look(cls, looked: WatchEvaluation) -> Self:
        holds = None if looked.seen.holds is None else bool(looked.seen.holds)
        return cls.of(looked.watch, looked.state, now=looked.seen.words, holds_now=holds)


class AlertRecipient(Result):
    """A recipient of alerts. ``address``: without its secret parts; ``setting``: the variable that sets it."""

    name: str
    address: str
    setting: str

    @classmethod
    def all_of(cls, targets: Targets) -> list[Self]:
        """The targets that the settings name."""
        return [
            cls(name=name, address=redact_address(target_address), setting=setting_variable(name))
            for name, target_address in targets.items()
        ]


class RemovedWatch(Result):
    """The name of the deleted watch."""

    removed: str


class AlertDelivery(Result):
    """One try to deliver an alert. ``address``: of the target, without its secret parts; empty if the settings do not
    name it. ``next_try_in_seconds``: null if there is none."""

    target: str
    address: str
    ok: bool
    title: str
    error: str
    next_try_in_seconds: Seconds | None

    @classmethod
    def of(cls, delivery: Delivery, targets: Targets) -> Self:
        address = redact_address(targets[delivery.target]) if delivery.target in targets else ""
        return cls.from_parts(delivery, address=address, next_try_in_seconds=delivery.next_try_in)


class WatchList(Result):
    """All watches, and the recipients of alerts. ``deliveries``: of alerts that were due, if they were checked now."""

    as_of: Moment
    watches: list[WatchResult]
    targets: list[AlertRecipient]
    deliveries: list[AlertDelivery]


class AlertTest(Result):
    """The deliveries of a test alert."""

    deliveries: list[AlertDelivery]

    @classmethod
    def of(cls, deliveries: Sequence[Delivery], targets: Targets) -> Self:
        return cls(deliveries=[AlertDelivery.of(delivery, targets) for delivery in deliveries])


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_CHECK_SECONDS = 15.0  # seconds of the wall clock between two checks by a service
_CHART, _MAX_CHARTED = timedelta(days=7), 50  # period of the line in a notice, and offers that it is drawn from
_TRIES = 5  # to update the state of a watch that other processes update as well


@dataclass(frozen=True, slots=True)
class WatchEvaluation:
    """The check of one watch: its state after it, what was found (``seen``), and the notice, if any."""

    watch: Watch
    state: WatchState
    seen: WatchFinding
    notice: Notice | None


@dataclass(frozen=True, slots=True)
class WatchCheck:
    """The check of all watches, and the deliveries."""

    looked: tuple[WatchEvaluation, ...]
    deliveries: tuple[notify.Delivery, ...]


def default_name(broker: Broker, watch: Watch) -> str:
    """A unique name made from the condition of the watch: ``h100-8-spot-below-2.00``."""
    base = re.sub(r"[^a-z0-9.]+", "-", watch.sentence.lower().replace(" per gpu-hour", ""))[:28].strip("-.")
    taken_names = {existing.name for existing, _ in broker.store.watches.all()}
    return next(
        name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken_names) + 3))) if name not in taken_names
    )


def watch_of(offer_filter: OfferFilter, **terms: Any) -> Watch:
    """A watch on the offers that the filter selects, with these other fields. Raises `InvalidInput`."""
    counted = [f"{machine}:{count}" for machine, counts in offer_filter.counts.items() for count in sorted(counts)]
    watch = Watch(
        machines=(*counted, *(machine for machine, counts in offer_filter.counts.items() if not counts)),
        providers=offer_filter.providers,
        regions=offer_filter.regions,
        capacity_types=tuple(sorted(offer_filter.capacity_types)),
        **terms,
    )
    if watch.age is not None and (watch.machines or watch.regions or watch.capacity_types):
        raise InvalidInput("a poll covers a whole provider, so only providers can be combined with stale")
    return watch


def add(broker: Broker, watch: Watch, *, replaces: bool = False) -> WatchEvaluation:
    """Store a watch, which ``replaces`` that of its name; returns its finding now. Sends nothing before the next
    `check`. Raises `InvalidInput` for an invalid name or one that is taken, `UnknownName` for an unknown provider,
    region or target."""
    if not _NAME.fullmatch(watch.name):
        expectation = "expected up to 60 lower-case letters, digits, dots, dashes and underscores"
        raise InvalidInput(f"{watch.name!r} is not a valid name for a watch; {expectation}", where="--name")
    _check_watch(broker, watch)
    if watch.targets:
        notify.select_targets(broker.settings.notify, watch.targets)
    finding = _evaluate(broker, watch, broker.clock.now())
    if not broker.store.watches.add(watch, replaces=replaces):
        raise InvalidInput(
            f"a watch named {watch.name!r} exists already",
            where="--name",
            hint=f"choose another, or remove it first: gpubroker prices watch remove {watch.name}",
        )
    return WatchEvaluation(watch, WatchState(), finding, None)


def remove(broker: Broker, name: str) -> None:
    """Delete a watch. Its queued notices are still delivered. Raises `UnknownName`."""
    if not broker.store.watches.remove(name):
        raise UnknownName("watch", name, (watch.name for watch, _ in broker.store.watches.all()))


def list_watches(broker: Broker, deliveries: Sequence[notify.Delivery] = ()) -> WatchList:
    """Every watch with its state at the last check, by name. ``deliveries``: of that check."""
    store, targets = broker.store, broker.settings.notify
    return WatchList(
        as_of=broker.clock.now(),
        watches=[
            WatchResult.of(watch, state, store.outbox.under(key_prefix(watch))) for watch, state in store.watches.all()
        ],
        targets=AlertRecipient.all_of(targets),
        deliveries=[AlertDelivery.of(delivery, targets) for delivery in deliveries],
    )


def check(broker: Broker) -> WatchCheck:
    """Check every watch, and send notices of conditions that began to hold since the last check. Any number of
    processes may do this at any time: each change causes one notice. Raises `StoreProblem`, and `MissingExtra` if a
    notice is due and Apprise is not installed; the notice is kept then."""
    results = tuple(_check(broker, watch, state) for watch, state in broker.store.watches.all())
    return WatchCheck(results, tuple(_deliver_notices(broker)))


def _deliver_notices(broker: Broker) -> list[notify.Delivery]:
    return notify.deliver(broker.store, broker.clock, broker.settings.notify)


def _check(broker: Broker, watch: Watch, state: WatchState) -> WatchEvaluation:
    for _ in range(_TRIES):
        now = broker.clock.now()
        finding = _evaluate(broker, watch, now)
        new_state, notice = step(watch, state, finding, now)
        if notice is not None and (chart := _chart(broker, watch, now)):
            new_state, notice = step(watch, state, replace(finding, details=(*finding.details, chart)), now)
        default_targets = () if notice is None else recipients(broker.settings, notice)
        targets = watch.targets or default_targets
        if broker.store.watches.move(watch, state, new_state, notice=notice, targets=targets, at=now):
            return WatchEvaluation(watch, new_state, finding, notice)
        current = next((s for stored, s in broker.store.watches.all() if stored == watch), None)
        if current is None:  # removed meanwhile
            break
        state = current
    return WatchEvaluation(watch, state, finding, None)


def _evaluate(broker: Broker, watch: Watch, now: datetime) -> WatchFinding:
    if watch.trigger is Trigger.STALE:
        return evaluate(watch, (), (), _provider_freshness(broker, watch, now), now)
    offers = _without_sandbox(watch, broker.store.offers(watch.query))
    earlier_offers: list[Offer] = []
    if watch.within is not None:
        recorded_offers = broker.store.market.offers_at(now - watch.within, query=watch.query)
        earlier_offers = _without_sandbox(watch, recorded_offers)
    return evaluate(watch, offers, earlier_offers, {}, now)


def _chart(broker: Broker, watch: Watch, now: datetime) -> str:
    """A line chart, as text, of the lowest price of the watched offers over the last week, or since it is known; empty
    without prices."""
    if watch.trigger is Trigger.STALE:
        return ""
    priced_offers = [
        offer
        for offer in _without_sandbox(watch, broker.store.offers(watch.query))
        if watch.fits(offer) and not offer.reference and offer.doubt is None and offer.has_valid_price()
    ]
    cheapest = sorted(priced_offers, key=lambda offer: (offer.price_per_gpu or offer.price or Money.ZERO, offer.id))[
        :_MAX_CHARTED
    ]
    series = broker.store.market.price_series_of(cheapest, now - _CHART, now)
    steps = [
        [(point.at, None if point.price is None else point.price.share(1, offer.count or 1)) for point in points]
        for offer in cheapest
        if (points := series.get(offer.id))
    ]
    units = {"GPU" if offer.count else "machine" for offer in cheapest}
    per = f"{' or '.join(sorted(units))}-hour"
    start = max(now - _CHART, min((points[0][0] for points in steps), default=now))
    return sparkline(lowest_prices(steps, start, now), now - start, per)


def _without_sandbox(watch: Watch, offers: Sequence[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.provider != SANDBOX or SANDBOX in watch.providers]


def _provider_freshness(broker: Broker, watch: Watch, now: datetime) -> Mapping[str, Freshness]:
    """The freshness of the providers. If the watch names none: of all but local providers and those that were never
    polled successfully, such as providers without a login."""
    freshness = broker.store.market.freshness(now)
    if watch.providers:
        return freshness
    local = {*broker.registries.local_providers, SANDBOX}
    return {
        name: provider_freshness
        for name, provider_freshness in freshness.items()
        if name not in local and provider_freshness.last_success is not None
    }


def _check_watch(broker: Broker, watch: Watch) -> None:
    if watch.trigger is not Trigger.STALE:
        check_names(broker, watch.query, broker.store.offers(watch.query))
        return
    known_providers = {*broker.registries.providers, *broker.store.market.freshness(broker.clock.now())}
    for pattern in watch.providers:
        if not any(replace(watch, providers=(pattern,)).fits_provider(name) for name in known_providers):
            raise UnknownName("provider", pattern, known_providers)


class WatchDuty:
    """The duty of `broker.app.service.duties` that checks watches and delivers notices. Any number of processes may run
    it. ``tell``: receives each notice and delivery; ``say``: receives each error once."""

    name = "watching"

    def __init__(
        self, broker: Broker, *, tell: Callable[[WatchEvaluation | notify.Delivery], None], say: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._tell = tell
        self._say = say

    def run(self, stop: threading.Event) -> None:
        """Check until ``stop`` is set. Errors of the store, or a missing Apprise, are reported and tried again."""
        last_error = ""
        while not stop.wait(_CHECK_SECONDS):
            try:
                result = check(self._broker)
            except BrokerError as error:
                if last_error != str(error):
                    last_error = str(error)
                    self._say(last_error)
                continue
            last_error = ""
            for watch_result in result.looked:
                if watch_result.notice is not None:
                    self._tell(watch_result)
            for delivery in result.deliveries:
                self._tell(delivery)
