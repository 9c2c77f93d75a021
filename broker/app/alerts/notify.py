"""Delivery of notices through Apprise: at least once for each key and target, retried until delivered.

Addresses contain secrets. They are read from the settings when something is sent, and are neither stored nor shown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from broker.app.alerts.routes import combine_notices
from broker.app.documents import Moment, Result
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, MissingExtra, UnknownName
from broker.core.notices import Notice
from broker.core.values.clock import Clock
from broker.store.outbox import Dispatch

if TYPE_CHECKING:
    from apprise import Apprise
    from pydantic import SecretStr

    from broker.store import Store
    from broker.store.outbox import Dispatch


class NoticeResult(Result):
    """One notice to one target. ``next_try`` is null when it was delivered or given up."""

    target: str
    title: str
    made_at: Moment
    delivered_at: Moment | None
    tries: int
    next_try: Moment | None
    error: str

    @classmethod
    def of(cls, dispatch: Dispatch) -> Self:
        return cls.from_parts(dispatch, title=dispatch.notice.title)


class NoticeList(Result):
    """Notices, sent and pending, newest first."""

    notices: list[NoticeResult]


class RetriedNotices(Result):
    """How many notices were to be tried again, how many were sent just now, and why others could not be, by
    recipient."""

    retried: int
    sent: int
    errors: dict[str, str]


Targets = Mapping[str, "SecretStr"]
SETUP_HINT = "set GPUBROKER_NOTIFY__<NAME> to an Apprise URL, such as slack://… or mailto://…"

# Wall clock. Longer than Apprise takes to give up on one address, so that no two processes send the same notice.
_CLAIM_TIME = timedelta(minutes=2)
_FIRST_PAUSE, _MAX_PAUSE = timedelta(seconds=30), timedelta(hours=1)
_MAX_TRIES = 79  # with these pauses, three days
_MAX_DELIVERIES = 200
_NULL_HANDLER = logging.NullHandler()
_MAIL = frozenset({"mailto", "mailtos"})
# Schemes that are followed by a host; in other schemes a token may follow.
_WITH_HOST = frozenset({"json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try to deliver a notice to a target. ``error``: empty if it was delivered. ``next_try_in``: None if it was
    delivered or given up."""

    key: str
    title: str
    target: str
    error: str
    next_try_in: timedelta | None = None

    @property
    def ok(self) -> bool:
        return not self.error


def notify(store: Store, clock: Clock, notice: Notice, targets: Targets) -> list[Delivery]:
    """Send the notice to every target, unless one with this key was sent before, and send other due notices.

    A notice that cannot be delivered now is kept and tried again by a later `deliver` or `notify`. Raises
    `StoreProblem`, and `MissingExtra` without Apprise; the notice is kept then, too. Not for use in a transaction.
    """
    store.outbox.add(notice, targets, clock.now())
    return deliver(store, clock, targets)


def deliver(store: Store, clock: Clock, targets: Targets) -> list[Delivery]:
    """Send the notices that are due to these targets. If several processes call this, one of them
    sends a given notice to a given target. Raises as `notify`.

    All notices to a target about one incident are one message. If a process dies after sending a notice and before
    recording it, the notice is sent again (at-least-once delivery). A failed delivery is tried again after 30 s; the
    pause doubles each time, up to an hour. After three days of trying it is given up; time in which no process tried
    does not count.
    """
    deliveries: list[Delivery] = []
    hold = _CLAIM_TIME * clock.scale
    while len(deliveries) < _MAX_DELIVERIES:
        now = clock.now()
        oldest = store.outbox.claim(tuple(targets), now, hold)
        if oldest is None:
            break
        batch = [oldest, *store.outbox.claim_with(oldest, now, hold)]
        address = targets[oldest.target].get_secret_value()
        error = _send(combine_notices([dispatch.notice for dispatch in batch]), address)
        # They may be too long for one message, or the service may refuse one of them: the next time each is sent alone.
        sends_singly = bool(error) and len(batch) > 1 and oldest.tries > 1
        deliveries += [
            _record_delivery(store, clock, dispatch, _send(dispatch.notice, address) if sends_singly else error)
            for dispatch in batch
        ]
    return deliveries


def _record_delivery(store: Store, clock: Clock, dispatch: Dispatch, error: str) -> Delivery:
    now, notice = clock.now(), dispatch.notice
    if not error:
        store.outbox.mark_delivered(dispatch, now)
        return Delivery(notice.key, notice.title, dispatch.target, "")
    pause = min(_FIRST_PAUSE * 2 ** min(dispatch.tries - 1, 20), _MAX_PAUSE)
    if dispatch.tries >= _MAX_TRIES:
        store.outbox.mark_failed(dispatch, f"{error}; given up", None)
        return Delivery(notice.key, notice.title, dispatch.target, f"{error}; given up")
    store.outbox.mark_failed(dispatch, error, now + pause * clock.scale)
    return Delivery(notice.key, notice.title, dispatch.target, error, pause)


def send_test(targets: Targets, names: Sequence[str]) -> list[Delivery]:
    """Send a test notice to the named targets, or to all if none is named, without storing it or trying again. Raises
    `InvalidInput` without targets, `UnknownName`, `MissingExtra`."""
    if not targets:
        raise InvalidInput("the settings name no recipient", hint=SETUP_HINT)
    body = "If you can read this, gpubroker can send you alerts about prices and budgets."
    notice = Notice("test", "gpubroker: test alert", body)
    return [
        Delivery(notice.key, notice.title, name, _send(notice, address.get_secret_value()))
        for name, address in select_targets(targets, names).items()
    ]


def select_targets(targets: Targets, names: Sequence[str]) -> Targets:
    """The named targets, or all if none is named. Raises `UnknownName`."""
    for name in names:
        if name not in targets:
            raise UnknownName("target", name, targets, where="GPUBROKER_NOTIFY__<NAME>")
    return {name: targets[name] for name in dict.fromkeys(names)} if names else targets


def check_addresses(targets: Targets) -> None:
    """Raises `InvalidInput` for an address that Apprise does not accept, without showing it, and `MissingExtra`."""
    for name, address in targets.items():
        if not _apprise().instantiate(address.get_secret_value(), suppress_exceptions=True):
            raise InvalidInput(
                "Apprise does not accept this address",
                where=setting_variable(name),
                hint="write it as https://appriseit.com/services lists them, such as mailto://USER:PASSWORD@HOST",
            )


def setting_variable(name: str) -> str:
    """The variable that holds the address of a target."""
    return f"GPUBROKER_NOTIFY__{name.upper()}"


def redact_address(address: SecretStr) -> str:
    """The non-secret part of an address: its scheme, and the host where one follows (``slack://…``)."""
    scheme, _, rest = address.get_secret_value().partition("://")
    if not rest or not re.fullmatch(r"[A-Za-z0-9]{1,20}", scheme):
        return "…"
    authority, path = re.fullmatch(r"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # always fits
    host = authority.rpartition("@")[2]
    # An at sign in the path: the password contains a slash, so the part before it belongs to the login.
    plain = re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", host) and ("@" in authority or "@" not in path.partition("?")[0])
    return f"{scheme}://{host}/…" if plain and scheme.lower() in _WITH_HOST else f"{scheme}://…"


def _apprise() -> type[Apprise]:
    try:
        from apprise import Apprise
    except ModuleNotFoundError as error:
        raise MissingExtra("serve", "sending notices") from error
    # Both log addresses, which must not reach standard error or our log file.
    logging.getLogger("apprise").propagate = False
    logging.getLogger("apprise").addHandler(_NULL_HANDLER)  # adding it again changes nothing
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return Apprise


def _send(notice: Notice, address: str) -> str:
    """Send the notice; returns why it failed, without the address, or an empty text."""
    apprise = _apprise()
    log_handler = _AppriseLog()
    log = logging.getLogger("apprise")
    log.addHandler(log_handler)
    try:
        service = apprise.instantiate(_add_thread_headers(address, notice.thread), suppress_exceptions=True)
        if not service:
            return "Apprise does not accept this address"
        is_delivered = service.notify(title=notice.title, body=notice.body, notify_type=notice.severity.value)
    except Exception as error:  # noqa: BLE001  # an error in one of Apprise's plug-ins must not stop other deliveries
        return f"its plug-in failed ({type(error).__name__})"
    finally:
        log.removeHandler(log_handler)
    return "" if is_delivered else log_handler.reason


def _add_thread_headers(address: str, thread: str) -> str:
    """The address; for mail, with the headers by which mail programs show the messages of one incident as one thread
    (RFC 5322, 3.6.4)."""
    scheme, _, rest = address.partition("://")
    if not thread or scheme.lower() not in _MAIL:
        return address
    root = quote(f"<{sha256(thread.encode()).hexdigest()[:32]}@gpubroker>", safe="")
    return f"{address}{'&' if '?' in rest else '?'}+References={root}&+In-Reply-To={root}"


class _AppriseLog(logging.Handler):
    """The reason of a failure from Apprise's log, whose messages may contain the address."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reason = "the service did not accept it"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if status := re.search(r"error=(\d{3})\b", message):
            self.reason = f"the service answered {status[1]}"
        elif "onnection" in message:
            self.reason = "the service cannot be reached"


def notice_list(broker: Broker, *, failed: bool = False, limit: int = 100) -> NoticeList:
    """Notices to people, newest first; with ``failed`` only those that could not be delivered yet, or were given up. A
    notice that waits for a recipient who is no longer in the settings has that as its error; it is sent once the
    settings name the recipient again."""
    targets = tuple(broker.settings.notify)
    dispatches = broker.store.outbox.newest(limit, failed=failed, targets=targets)
    return NoticeList.from_parts(notices=[_with_target_error(dispatch, targets) for dispatch in dispatches])


def _with_target_error(dispatch: Dispatch, targets: Sequence[str]) -> Dispatch:
    if dispatch.delivered_at is not None or dispatch.error or dispatch.target in targets:
        return dispatch
    return replace(dispatch, error=f"no such recipient: {setting_variable(dispatch.target)} is not set")


def retry_failed(broker: Broker) -> RetriedNotices:
    """Try now to deliver every notice that could not be delivered, also those that were given up. Raises
    `StoreProblem`, `MissingExtra` without Apprise."""
    settings = broker.settings
    count = broker.store.outbox.retry(broker.clock.now(), tuple(settings.notify))
    deliveries = deliver(broker.store, broker.clock, settings.notify)
    errors = {delivery.target: delivery.error for delivery in deliveries if not delivery.ok}
    return RetriedNotices(retried=count, sent=sum(delivery.ok for delivery in deliveries), errors=errors)
