"""Telling people: notices through Apprise, each at least once and no key twice, tried again until they are delivered.

Addresses hold secrets. They are read from the settings when something is sent, and are neither stored nor shown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from broker.core.errors import InvalidInput, MissingExtra, UnknownName
from broker.core.notices import Notice
from broker.core.values.clock import Clock

if TYPE_CHECKING:
    from apprise import Apprise
    from pydantic import SecretStr

    from broker.store import Store
    from broker.store.outbox import Dispatch

Targets = Mapping[str, "SecretStr"]

# By the wall clock. Longer than Apprise takes to give up on one address (seconds), so that no two send the same.
_HOLD = timedelta(minutes=2)
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=1)
_GIVE_UP_AFTER = timedelta(days=3)
_MOST_AT_ONCE = 200
_NOWHERE = logging.NullHandler()
# Schemes in which what follows is a host; in others it may be a token.
_WITH_HOST = frozenset({"json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try to tell one target. ``error`` is empty when it went well; then ``next_try_in`` is None, as it is when
    nobody will try again."""

    key: str
    title: str
    target: str
    error: str
    next_try_in: timedelta | None = None

    @property
    def ok(self) -> bool:
        return not self.error


def notify(store: Store, clock: Clock, notice: Notice, targets: Targets) -> list[Delivery]:
    """Tell every target of it, unless it was told under this key before, and send what else is due to them.

    What cannot be delivered now is kept and tried again by the next `deliver` (or `notify`) after a pause. Raises
    `StoreProblem`, and `MissingExtra` without Apprise: the notice is kept then, too. Not for use in a transaction.
    """
    store.outbox.add(notice, targets, clock.now())
    return deliver(store, clock, targets)


def deliver(store: Store, clock: Clock, targets: Targets) -> list[Delivery]:
    """Send what is due to these targets, each to each by one process alone. Raises as `notify`.

    A process that dies between sending and noting it down leaves the notice to be sent again: at least once. What fails
    is tried again after 30 s, then twice as long each time up to an hour, for three days.
    """
    done: list[Delivery] = []
    while len(done) < _MOST_AT_ONCE:
        dispatch = store.outbox.claim(tuple(targets), clock.now(), _HOLD * clock.scale)
        if dispatch is None:
            break
        error = _send(dispatch.notice, targets[dispatch.target].get_secret_value())
        done.append(_note_down(store, clock, dispatch, error))
    return done


def _note_down(store: Store, clock: Clock, dispatch: Dispatch, error: str) -> Delivery:
    now, notice = clock.now(), dispatch.notice
    if not error:
        store.outbox.delivered(dispatch, now)
        return Delivery(notice.key, notice.title, dispatch.target, "")
    pause = min(_FIRST_PAUSE * 2 ** min(dispatch.tries - 1, 20), _LONGEST_PAUSE)
    if now - dispatch.made_at >= _GIVE_UP_AFTER * clock.scale:
        store.outbox.failed(dispatch, f"{error}; given up", None)
        return Delivery(notice.key, notice.title, dispatch.target, f"{error}; given up")
    store.outbox.failed(dispatch, error, now + pause * clock.scale)
    return Delivery(notice.key, notice.title, dispatch.target, error, pause)


def try_out(targets: Targets, notice: Notice) -> list[Delivery]:
    """Send a notice to each target now, once, and keep nothing. Raises `MissingExtra`."""
    return [
        Delivery(notice.key, notice.title, name, _send(notice, address.get_secret_value()))
        for name, address in targets.items()
    ]


def chosen(targets: Targets, names: Sequence[str]) -> Targets:
    """Those named, or all. Raises `UnknownName`."""
    for name in names:
        if name not in targets:
            raise UnknownName("target", name, targets, where="GPUBROKER_NOTIFY__<NAME>")
    return {name: targets[name] for name in dict.fromkeys(names)} if names else targets


def check_addresses(targets: Targets) -> None:
    """Raises `InvalidInput` for an address that Apprise does not understand, without showing it, and `MissingExtra`."""
    for name, address in targets.items():
        if _service(address.get_secret_value()) is None:
            raise InvalidInput(
                "no address that Apprise understands",
                where=variable(name),
                hint="write it as https://appriseit.com/services lists them, such as mailto://USER:PASSWORD@HOST",
            )


def variable(name: str) -> str:
    """The variable that holds the address of a target."""
    return f"GPUBROKER_NOTIFY__{name.upper()}"


def shown(address: SecretStr) -> str:
    """What may be shown of an address: its kind, and the host where that is one (``slack://…``)."""
    scheme, _, rest = address.get_secret_value().partition("://")
    if not rest or not re.fullmatch(r"[A-Za-z0-9]{1,20}", scheme):
        return "…"
    authority, path = re.fullmatch(r"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # always fits
    host = authority.rpartition("@")[2]
    # An at sign further on: a password with a slash in it, so that what stands here is part of the login.
    plain = re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", host) and ("@" in authority or "@" not in path.partition("?")[0])
    return f"{scheme}://{host}/…" if plain and scheme.lower() in _WITH_HOST else f"{scheme}://…"


def _apprise() -> type[Apprise]:
    try:
        from apprise import Apprise
    except ModuleNotFoundError as error:
        raise MissingExtra("serve", "sending notices") from error
    # Both write addresses into their logs, which would go to standard error or into our own log file.
    logging.getLogger("apprise").propagate = False
    logging.getLogger("apprise").addHandler(_NOWHERE)  # adding it again changes nothing
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return Apprise


def _service(address: str) -> object | None:
    return _apprise().instantiate(address, suppress_exceptions=True) or None


def _send(notice: Notice, address: str) -> str:
    """Send it; why it failed, in words without the address, or an empty text."""
    apprise = _apprise()
    heard = _AppriseLog()
    log = logging.getLogger("apprise")
    log.addHandler(heard)
    try:
        service = apprise.instantiate(address, suppress_exceptions=True)
        if not service:
            return "no address that Apprise understands"
        sent = service.notify(title=notice.title, body=notice.body, notify_type=notice.severity.value)
    except Exception as error:  # noqa: BLE001  # a plug-in for each of 130 services: none may stop the others
        return f"its plug-in failed ({type(error).__name__})"
    finally:
        log.removeHandler(heard)
    return "" if sent else heard.reason


class _AppriseLog(logging.Handler):
    """What Apprise says of a failure, without the rest: its messages may name the address."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reason = "the service did not take it"

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if status := re.search(r"error=(\d{3})\b", said):
            self.reason = f"the service answered {status[1]}"
        elif "onnection" in said:
            self.reason = "the service cannot be reached"
