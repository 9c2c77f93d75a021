"""Polling providers for prices, on request and on a schedule."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.alerts.routes import recipients
from broker.app.market.price_documents import PolledProvider, PriceStatus
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, StoreProblem, UnknownName
from broker.core.market.market_judge import ModelLevels, levels_of
from broker.core.market.offers import SANDBOX, Offer, OfferQuery
from broker.core.notices import Notice, Severity
from broker.core.ports import Provider
from broker.core.values.provider_names import provider_name
from broker.market.concurrent_poll import Watch, poll_concurrently
from broker.market.poller import PollRequest, PollResult, interval
from broker.market.suspicion import Suspicion
from broker.settings import PollSettings
from broker.store.records import AcceptedPrices, PollStatus

if TYPE_CHECKING:
    from broker.store.records import Freshness

_STANDBY_SECONDS = 2.0  # seconds of the wall clock between two tries to take the lead


def providers_to_poll(broker: Broker, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The named providers; if none is named, all but the sandbox. Raises `UnknownName`."""
    registered, selected = broker.registries.providers, dict.fromkeys(map(provider_name, names))
    for name in selected:
        if name not in registered:
            raise UnknownName("provider", name, registered)
    return tuple(selected) or tuple(name for name in registered if name != SANDBOX)


def poll_now(
    broker: Broker, names: Sequence[str] = (), *, watch: Watch | None = None, stop: threading.Event | None = None
) -> Iterator[PollResult]:
    """Poll these providers (or all but the sandbox) concurrently, each isolated from the others; a result when each is
    stored. See `poll_concurrently`.

    Raises `UnknownName`, and `StoreProblem` for a store that cannot be written to, before any provider is asked.
    """
    selected = providers_to_poll(broker, names)
    broker.store.check_writable()
    requests = [poll_request(broker, name) for name in selected]
    return poll_concurrently(requests, broker.store, broker.clock, watch=watch, stop=stop)


def poll_request(broker: Broker, name: str) -> PollRequest:
    """The request that polls the provider. A provider that cannot be created (a missing extra, an invalid setting)
    fails when it is polled, so that the others are not affected."""
    provider_settings = poll_settings(broker, name)
    # Prices from this machine, its files and the user's own clusters are accepted; those of other sources are checked.
    is_trusted = name == SANDBOX or name in broker.registries.local_providers
    make: Callable[[], Provider]
    try:
        provider = broker.provider(name)
    except BrokerError as error:
        make = _raising_factory(error)
    else:
        make = lambda: provider  # noqa: E731  # the other branch of one choice
        is_trusted = is_trusted or getattr(provider, "refresh_before_deciding", False)
    timeout = provider_settings.timeout.total_seconds()
    if is_trusted:
        return PollRequest(name, make, timeout=timeout, max_age=provider_settings.max_age)
    kept_answers = broker.store.market.kept_answers(name, broker.clock.now())
    judge = Suspicion(book_levels(broker))
    return PollRequest(name, make, timeout=timeout, max_age=provider_settings.max_age, judge=judge, kept=kept_answers)


def _raising_factory(error: BrokerError) -> Callable[[], Provider]:
    def raises() -> Provider:
        raise error

    return raises


def poll_settings(broker: Broker, name: str) -> PollSettings:
    """The poll settings of that provider; the defaults if it has none."""
    return broker.settings.prices.get(name, PollSettings())


def poll_interval(broker: Broker, name: str, freshness_by_name: Mapping[str, Freshness] | None = None) -> timedelta:
    """The time between two scheduled polls of that provider: the setting, else derived from the maximum age of its
    prices."""
    configured = poll_settings(broker, name).every
    if configured is not None:
        return configured
    freshness = broker.store.market.freshness(broker.clock.now()) if freshness_by_name is None else freshness_by_name
    provider_freshness = freshness.get(name)
    return interval(
        provider_freshness.limit if provider_freshness else None,
        has_offers=bool(provider_freshness and provider_freshness.offers),
    )


def price_status(broker: Broker) -> PriceStatus:
    """The polls of every provider and every imported source, by name."""
    now = broker.clock.now()
    freshness_by_name = broker.store.market.freshness(now)
    names = sorted({*broker.registries.providers, *freshness_by_name})
    polled_sources = {
        name: freshness
        for name in names
        if (freshness := freshness_by_name.get(name)) is not None and freshness.last is not None
    }
    return PriceStatus(
        providers=[
            PolledProvider.of(freshness, poll_interval(broker, name, freshness_by_name), now)
            for name, freshness in polled_sources.items()
        ],
        never_polled=[name for name in names if name not in polled_sources],
        scheduled=is_scheduled(broker),
    )


def is_scheduled(broker: Broker) -> bool:
    """Whether a process polls this store on a schedule now."""
    from broker.store.engine.leader import LeaderRole

    return broker.store.is_led(LeaderRole.PRICES)


class PollDuty:
    """The duty of `broker.app.service.duties` that polls a store's providers. One process per store holds it at a time;
    the others stand by and take over when it ends. ``tell``: receives each poll; ``say``: messages about the lead."""

    name = "polling"

    def __init__(
        self,
        broker: Broker,
        names: Sequence[str] = (),
        *,
        tell: Callable[[PollResult], None],
        say: Callable[[str], None],
    ) -> None:
        """Raises `UnknownName`, and `MissingExtra` without APScheduler."""
        from broker.market.concurrent_poll import check_installed

        check_installed()
        self._broker = broker
        self._names = providers_to_poll(broker, names)
        self._tell = tell
        self._say = say
        self._making = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        """Poll until ``stop`` is set. An unreachable or locked store is reported and tried again."""
        from broker.store.engine.leader import LeaderRole

        last_message = ""
        while not stop.is_set():
            try:
                with self._broker.store.lead(LeaderRole.PRICES) as still_leading:
                    if still_leading is not None:
                        self._say("polling")
                        self._lead(stop, still_leading)
                        last_message = ""
                    elif not last_message:
                        last_message = "standby: another process polls this store"
                        self._say(last_message)
            except StoreProblem as problem:
                if last_message != str(problem):
                    last_message = str(problem)
                    self._say(last_message)
            stop.wait(_STANDBY_SECONDS)

    def _lead(self, stop: threading.Event, still_leading: Callable[[], bool]) -> None:
        from broker.market.concurrent_poll import run_schedule

        broker = self._broker
        run_schedule(
            {name: self._due_in(name) for name in self._names},
            self._ask,
            lambda name: poll_interval(broker, name),
            broker.store,
            broker.clock,
            stop=stop,
            still_leading=still_leading,
            report=self._report,
        )

    def _ask(self, name: str) -> PollRequest:
        with self._making:  # providers are created in one thread at a time
            return poll_request(self._broker, name)

    def _report(self, result: PollResult) -> None:
        if result.cut_short:  # its thread may still use the old instance
            with self._making:
                self._broker.forget_provider(result.provider)
        alert_trouble(self._broker, result)
        self._tell(result)

    def _due_in(self, name: str) -> timedelta:
        """The wall-clock time until the provider is due, by its last poll, so that a restart does not poll it again at
        once."""
        last_poll, now = self._broker.store.last_polls().get(name), self._broker.clock.now()
        if last_poll is None or last_poll.finished > now:  # never polled, or the clock was set back since
            return timedelta(0)
        remaining = last_poll.finished + poll_interval(self._broker, name) - now
        return max(remaining, timedelta(0)) / self._broker.clock.scale


log = logging.getLogger(__name__)


def accept_prices(
    broker: Broker, provider: str, pools: Sequence[str] = (), *, by: Actor, note: str = ""
) -> AcceptedPrices:
    """Accept the last poll of ``provider`` as ``by``: missing offers count as gone, and suspicious prices as right.
    Recorded with the offers concerned. ``provider``: also that of an imported file; ``pools``: only these. Raises
    `UnknownName` for a provider that was never polled, `InvalidInput` if nothing is suspicious."""
    last_polls = broker.store.last_polls()
    if provider not in last_polls and f"csv:{provider}" in last_polls:
        provider = f"csv:{provider}"
    if provider not in last_polls:
        raise UnknownName("provider", provider, last_polls)
    accepted_doubts = broker.store.accept_doubts(provider, pools, by=by.identity, note=note)
    log.info("%s accepted the prices of %s (%d)", by.identity, provider, accepted_doubts.number)
    return accepted_doubts


SILENCE = timedelta(hours=12)  # of failed polls; shorter ones are outages that end by themselves


def alert_trouble(broker: Broker, result: PollResult) -> bool:
    """Queue an alert about a suspect poll, or about polls that have failed for `SILENCE`, once until a poll of the
    provider is believed again; whether it is new. Raises `StoreProblem`."""
    if not result.failed:
        return False
    now = broker.clock.now()
    freshness = broker.store.market.freshness(now).get(result.provider)
    last_success = freshness.last_success if freshness is not None else None
    if result.status is PollStatus.SUSPECT:
        title = f"gpubroker: the prices of {result.provider} are suspect"
    elif last_success is not None and now - last_success >= SILENCE:
        title = f"gpubroker: no prices of {result.provider} since {last_success:%Y-%m-%d %H:%M} UTC"
    else:
        return False
    notice = Notice(
        key=f"suspect/{result.provider}/{last_success.isoformat() if last_success else 'never'}",
        title=title,
        body="\n".join([result.error, "", result.hint]),
        severity=Severity.WARNING,
        thread=f"suspect/{result.provider}",
    )
    return bool(broker.store.outbox.add(notice, recipients(broker.settings, notice), broker.clock.now()))


def fresh_providers(broker: Broker, names: Collection[str]) -> set[str]:
    """The providers among ``names`` whose stored prices are all within their age limits, without those of this machine:
    if one of these fails, its setting is wrong."""
    known = broker.store.market.freshness(broker.clock.now())
    others = {*names} - {*broker.registries.local_providers}
    states = {name: known[name] for name in others if name in known}
    return {
        name for name, state in states.items() if state.offers and not state.stale and state.last_success is not None
    }


_NO_NETWORK = "no_network_at"
# Documentation addresses: connecting a datagram socket looks up the route and sends nothing.
_ROUTES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def has_network(environment: Mapping[str, str]) -> bool:
    """Whether this machine has a route to others, or a proxy. Sends nothing."""
    if any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in environment):
        return True
    for family, address in _ROUTES:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return True
    return False


def tell_no_network(broker: Broker) -> bool:
    """Whether to say that there is no network: once within `RETRY_AFTER`."""
    last_told, now = broker.store.setting(_NO_NETWORK), broker.clock.now()
    if last_told is not None and abs(now - datetime.fromisoformat(last_told)) < RETRY_AFTER:
        return False
    with suppress(StoreProblem):
        broker.store.set_setting(_NO_NETWORK, now.isoformat())
    return True


MAX_FIRST_WAIT = 8.0  # seconds of the wall clock; sources without an answer by then are asked again by the next poll
RETRY_AFTER = timedelta(hours=1)  # after a query that reached no provider


def first_sources(broker: Broker) -> tuple[str, ...]:
    """The sources to ask first; none if a provider over the network has ever answered, if one was asked within the last
    hour, or with the setting ``offline``."""
    if broker.settings.offline or not broker.registries.quick_providers:
        return ()
    local_sources = {*broker.registries.local_providers, SANDBOX}
    remote_polls = [run for name, run in broker.store.last_polls().items() if name not in local_sources]
    now = broker.clock.now()
    if any(run.seen or abs(now - run.finished) < RETRY_AFTER for run in remote_polls):
        return ()
    return tuple(name for name in broker.registries.quick_providers if name in broker.registries.providers)


def poll_first_sources(broker: Broker, names: tuple[str, ...], *, watch: Watch | None = None) -> Iterator[PollResult]:
    """Ask these sources side by side, for `MAX_FIRST_WAIT` at most; a result as each is stored. Sends no request if the
    store cannot be written to."""
    try:
        broker.store.check_writable()
    except StoreProblem:
        return
    requests = [poll_request(broker, name) for name in names]
    limited_requests = [replace(ask, timeout=min(ask.timeout, MAX_FIRST_WAIT)) for ask in requests]
    yield from poll_concurrently(limited_requests, broker.store, broker.clock, watch=watch)


_BOOK = "pricebook"


def book_levels(broker: Broker) -> ModelLevels:
    """The price levels of the book that comes with gpubroker, whatever the store holds and whichever book the settings
    name."""
    if _BOOK not in broker.registries.providers:
        return {}
    book = broker.registries.build_provider(_BOOK, clock=broker.clock, settings={})
    return levels_of(
        (row.accelerator or "", row.capacity_type.value, row.provider, float(unit_price.micros))
        for row in book.offers(OfferQuery())
        if isinstance(row, Offer) and (unit_price := row.price_per_unit) is not None
    )
