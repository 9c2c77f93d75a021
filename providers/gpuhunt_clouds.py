"""The clouds that gpuhunt supports and that have no adapter here, and queries through gpuhunt's own classes.

gpuhunt's query fails as a whole when one cloud fails, and importing all of its modules fails in 0.1.34 (that of Google
lacks a file), so each cloud's module is loaded and asked by itself. Its modules talk through ``requests``, with
addresses and timeouts written into them; `_Requests` stands in for that one name in the module, so that the settings
in force here (another address, certificates, timeouts, no redirects) hold there, too. What a module only logs is
collected.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from broker.core.errors import (
    BrokerError,
    GiveUp,
    HostUnknown,
    Malformed,
    MissingExtra,
    Refused,
    Unreachable,
)
from broker.core.values.clock import Clock
from providers.http import (
    NO_NETWORK,
    HttpSettings,
    redacted_url,
    retry_after,
    retrying,
    setting,
    status_error,
    without_address,
    without_logins,
)

NAME = "gpuhunt"


@dataclass(frozen=True, slots=True)
class GpuhuntCloud:
    """One cloud: gpuhunt's class for it and its address. ``needs`` and ``takes``: arguments of the class that are
    logins, by the variable that holds each; the class cannot be created without the former. ``has_static_prices``:
    gpuhunt queries the cloud for its machines, and has the prices in its own code."""

    name: str
    maker: str
    address: str
    needs: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    has_static_prices: bool = False

    def login(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The arguments that the environment has."""
        arguments = {**self.needs, **self.takes}
        return {
            name: environment[variable].strip() for name, variable in arguments.items() if environment.get(variable)
        }

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.needs.values(), *self.takes.values())

    def can_query(self, environment: Mapping[str, str]) -> bool:
        """Whether all required logins are present."""
        return set(self.needs) <= set(self.login(environment))


CLOUDS = {
    cloud.name: cloud
    for cloud in (
        GpuhuntCloud("cloudrift", "CloudRiftProvider", "https://api.cloudrift.ai"),
        GpuhuntCloud(
            "crusoe",
            "CrusoeProvider",
            "https://api.crusoecloud.com",
            needs={
                "access_key": "CRUSOE_ACCESS_KEY",
                "secret_key": "CRUSOE_SECRET_KEY",
                "project_id": "CRUSOE_PROJECT_ID",
            },
            has_static_prices=True,
        ),
        GpuhuntCloud(
            "daytona",
            "DaytonaProvider",
            "https://billing.app.daytona.io/gpu-pricing",
            takes={"api_key": "DAYTONA_API_KEY"},
        ),
        GpuhuntCloud(
            "digitalocean",
            "DigitalOceanProvider",
            "https://api.digitalocean.com",
            needs={"api_key": "DIGITAL_OCEAN_API_KEY"},
        ),
        GpuhuntCloud(
            "hotaisle",
            "HotAisleProvider",
            "https://admin.hotaisle.app/api",
            needs={"api_key": "HOTAISLE_API_KEY", "team_handle": "HOTAISLE_TEAM_HANDLE"},
        ),
        GpuhuntCloud(
            "jarvislabs", "JarvisLabsProvider", "https://backendn.jarvislabs.net", needs={"api_key": "JL_API_KEY"}
        ),
        GpuhuntCloud("lium", "LiumProvider", "https://lium.io/api/public/v1/nodes"),
        GpuhuntCloud("seeweb", "SeewebProvider", "https://api.seeweb.it/ecs/v2", needs={"token": "SEEWEB_API_TOKEN"}),
        GpuhuntCloud("vultr", "VultrProvider", "https://api.vultr.com/v2", takes={"api_key": "VULTR_API_KEY"}),
    )
}


@dataclass(frozen=True, slots=True)
class CloudReport:
    """The result of one cloud: gpuhunt's items, and the warnings of its module about skipped ones. ``error``: the
    reason why something is missing."""

    cloud: GpuhuntCloud
    items: list[Any]
    passed_over: list[str]
    error: BrokerError | None = None


def query_cloud(
    cloud: GpuhuntCloud, settings: HttpSettings, base_url: str | None, clock: Clock, login: Mapping[str, str]
) -> CloudReport:
    """Query all offers of one cloud; never raises for its failures. Retried as every other call over HTTP.

    Raises `MissingExtra` when gpuhunt is not installed.
    """
    try:
        import_module("gpuhunt")
    except ImportError as error:
        raise MissingExtra("gpuhunt", f"provider {NAME!r}") from error
    where = f"{NAME}/{cloud.name}"
    try:
        module = import_module(f"gpuhunt.providers.{cloud.name}")
        provider_class = getattr(module, cloud.maker)
    except Exception as error:  # noqa: BLE001  # importing somebody's module may raise anything (a missing file, an SDK)
        return CloudReport(cloud, [], [], GiveUp(f"gpuhunt cannot read this cloud: {error}", where=where))
    wire = _Requests(cloud.name, settings, base_url)
    setattr(module, "requests", wire)  # noqa: B010  # a module's name, which no type knows of
    with _record_log(module) as log:

        def once() -> list[Any]:
            log.broken = wire.failed = None
            try:
                found = list(provider_class(**login).get())
                if log.broken and not wire.failed:
                    raise log.broken  # an answer that the module could not read and ignored
                return found
            except Exception as error:  # noqa: BLE001  # gpuhunt may raise any exception
                raise _broker_error(error, cloud, clock.now(), login) from None  # its traceback may show the login

        try:
            items = retrying(settings, clock)(once)
        except BrokerError as error:
            return CloudReport(cloud, [], log.lines, error)
    # A failed call that the module ignored: rows are missing, and the poll must not count as complete.
    failure = None if wire.failed is None else _broker_error(wire.failed, cloud, clock.now(), login)
    return CloudReport(cloud, items, log.lines, failure)


class _Requests:
    """Replaces ``requests`` in a module of gpuhunt: the same library, with the settings of this provider."""

    def __init__(self, cloud: str, settings: HttpSettings, base_url: str | None) -> None:
        self._base = f"{base_url}/{cloud}" if base_url else None
        self._settings = settings
        self.failed: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        import requests

        return getattr(requests, name)

    def get(self, url: str, **options: Any) -> Any:
        return self.request("GET", url, **options)

    def request(self, method: str, url: str, **options: Any) -> Any:
        import requests

        options |= {"allow_redirects": False}
        options.pop("timeout", None)  # data in gpuhunt's own code
        if self._settings.ca_bundle is not None:
            options["verify"] = str(self._settings.ca_bundle)
        try:
            answer = requests.request(method, self._address(url), timeout=self._settings.timeout_seconds, **options)
            if answer.is_redirect:
                raise requests.TooManyRedirects("sends elsewhere; redirects are not followed", response=answer)
            answer.raise_for_status()
            if answer.content.lstrip()[:1] in (b"{", b"[") and not _is_utf8(answer.content):
                # JSON is UTF-8 (RFC 8259 §8.1); requests would guess another encoding, and a key be another.
                raise requests.JSONDecodeError("not UTF-8", "", 0)
        except (requests.RequestException, OSError) as error:
            self.failed = error
            raise
        return answer

    def _address(self, url: str) -> str:
        """The address to call: the path of ``url`` under the configured base, or ``url`` itself."""
        if self._base is None:
            return url
        parts = urlsplit(url)
        return self._base + parts.path + (f"?{parts.query}" if parts.query else "")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _broker_error(error: Exception, cloud: GpuhuntCloud, now: datetime, login: Mapping[str, str]) -> BrokerError:
    """The broker's error for an exception, without the login that its text may contain."""
    import requests

    where = f"{NAME}/{cloud.name}"
    text = " ".join(f"{type(error).__name__}: {without_logins(error)}".split())
    for secret in login.values():
        text = text.replace(secret, "***")
    text, change = text[:200], f"is {setting(NAME, 'base_url')} right, and the network up?"
    if isinstance(error, requests.TooManyRedirects):
        return Refused(text, where=where, hint=change)
    answer = getattr(error, "response", None)
    if isinstance(error, requests.HTTPError) and answer is not None:
        status = f"HTTP {answer.status_code} {answer.reason}: {redacted_url(answer.url)}"
        retry_seconds = retry_after(answer.headers.get("Retry-After"), now)
        hint = f"renew {', '.join(cloud.variables)}" if login else ""
        known = status_error(answer.status_code, status, where, retry_seconds, hint)
        return known or Refused(status, where=where)
    if isinstance(error, requests.JSONDecodeError):
        return Malformed("expected JSON, got something else", where=where)
    if without_address(error):
        return HostUnknown(f"no address for {urlsplit(cloud.address).hostname}", where=where, hint=NO_NETWORK)
    if isinstance(error, requests.RequestException | OSError):
        return Unreachable(f"cannot be reached: {text}", where=where, hint=change)
    # The module's exceptions for an answer of another shape: KeyError, TypeError, its own ValueError.
    return Malformed(f"an answer that gpuhunt cannot read: {text}", where=where, hint="is there a newer gpuhunt?")


class _ModuleLog(logging.Handler):
    """Records a module's log: its warnings, and exceptions that it caught."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.broken: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.broken = record.exc_info[1]
        else:
            self.lines.append(record.getMessage())


@contextmanager
def _record_log(module: ModuleType) -> Iterator[_ModuleLog]:
    """Records the module's log meanwhile, which would otherwise go to the terminal."""
    logger, handler = logging.getLogger(module.__name__), _ModuleLog()
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.propagate = propagates
        logger.removeHandler(handler)
