"""The setup of each provider: its endpoints and their settings, the logins found, what other logins would add, and the
result of its last poll."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from broker.app.documents import Facts
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, MissingExtra
from broker.store.records import PollRun, PollStatus


class Health(StrEnum):
    """``note``: fine, but something optional is missing or worth knowing. ``problem``: something will not work."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One checked thing: its state, and how to fix it. ``facts``: details for programs."""

    area: str
    health: Health
    message: str
    fix: str = ""
    facts: Facts = field(default_factory=dict)


def is_healthy(findings: Sequence[DoctorFinding]) -> bool:
    return all(finding.health is not Health.PROBLEM for finding in findings)


@runtime_checkable
class DescribesSetup(Protocol):
    """A provider (or its module) that describes its setup."""

    def describe_setup(self) -> Mapping[str, Any]:
        """``endpoints``: name → {url, setting}; ``logins``: name → {found, how, adds}. Sends no request, holds no
        secret."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address in use, the setting that changes it, the setting for its certificates (``tls``), and whether it was
    changed."""

    name: str
    url: str
    setting: str
    tls: str
    changed: bool


@dataclass(frozen=True, slots=True)
class LoginSetup:
    """One login: whether and where it was found, how to configure it, and what it adds."""

    name: str
    found: bool
    where: str
    how: str
    adds: str


@dataclass(frozen=True, slots=True)
class ProviderSetup:
    """How a provider is set up. ``problem``: why it cannot be queried; empty if it can."""

    provider: str
    ready: bool
    problem: str
    endpoints: tuple[Endpoint, ...] = ()
    logins_found: tuple[LoginSetup, ...] = ()
    logins_missing: tuple[LoginSetup, ...] = ()


def provider_findings(broker: Broker) -> Iterator[DoctorFinding]:
    """One finding for each provider; its `ProviderSetup` is among the facts."""
    polls, now = broker.store.last_polls(), broker.clock.now()
    fresh = broker.store.market.freshness(now)
    for name in broker.registries.providers:
        try:
            setup = describe_provider(broker, name)
        except MissingExtra as error:
            yield DoctorFinding(
                "provider", Health.NOTE, f"{name}: {error}", error.hint, _facts(ProviderSetup(name, False, str(error)))
            )
        except BrokerError as error:
            facts = _facts(ProviderSetup(name, False, str(error)))
            yield DoctorFinding("provider", Health.PROBLEM, f"{name}: {error}", error.hint, facts)
        else:
            answered = name in fresh and fresh[name].last_success is not None
            yield _poll_finding(setup, polls.get(name), now, answered=answered)


def _poll_finding(setup: ProviderSetup, last_poll: PollRun | None, now: datetime, *, answered: bool) -> DoctorFinding:
    name, facts = setup.provider, _facts(setup)
    if last_poll is None:
        return DoctorFinding("provider", Health.NOTE, f"{name}: not asked yet", "gpubroker prices poll", facts)
    facts |= {"last_poll": last_poll.finished, "offers": last_poll.seen, "last_error": last_poll.error}
    ago_text = _ago(now - last_poll.finished)
    if not last_poll.error:
        offers = "1 offer" if last_poll.seen == 1 else f"{last_poll.seen:,} offers"
        return DoctorFinding("provider", Health.OK, f"{name}: {offers}, asked {ago_text}", facts=facts)
    # A provider without a login is not a problem; a refused login is one.
    is_unconfigured = last_poll.status is PollStatus.EXTRA_MISSING or (
        last_poll.status is PollStatus.LOGIN_MISSING and not setup.logins_found
    )
    if is_unconfigured:
        return DoctorFinding("provider", Health.NOTE, f"{name}: not set up: {last_poll.error}", last_poll.hint, facts)
    fix = last_poll.hint or "gpubroker prices poll"
    if not answered and last_poll.status is PollStatus.FAILED:  # not reached yet, such as before there was a network
        return DoctorFinding("provider", Health.NOTE, f"{name}: never answered yet: {last_poll.error}", fix, facts)
    return DoctorFinding("provider", Health.PROBLEM, f"{name}: failed {ago_text}: {last_poll.error}", fix, facts)


def _facts(setup: ProviderSetup) -> dict[str, Any]:
    return {"provider": setup.provider, "ready": setup.ready, "setup": setup}


def describe_provider(broker: Broker, name: str) -> ProviderSetup:
    """The endpoints in use and the logins found, if the provider or its module describes them. Raises as
    `Broker.provider`."""
    provider = broker.provider(name)
    module = import_module(type(provider).__module__)
    describer = next((source for source in (provider, module) if isinstance(source, DescribesSetup)), None)
    description = describer.describe_setup() if describer is not None else {}
    provider_settings = broker.settings.providers.get(name, {})
    endpoints = [
        Endpoint(
            label,
            endpoint["url"],
            endpoint["setting"],
            endpoint.get("tls", ""),
            _is_overridden(endpoint["setting"], provider_settings),
        )
        for label, endpoint in description.get("endpoints", {}).items()
    ]
    logins = [
        LoginSetup(label, bool(login["found"]), login.get("where", ""), login["how"], login.get("adds", ""))
        for label, login in description.get("logins", {}).items()
    ]
    found, missing = (tuple(login for login in logins if login.found is is_found) for is_found in (True, False))
    return ProviderSetup(name, True, "", tuple(endpoints), found, missing)


def _is_overridden(setting: str, provider_settings: Mapping[str, Any]) -> bool:
    """Whether the environment or the settings file sets this setting."""
    return setting in os.environ or setting.rpartition("__")[2].lower() in provider_settings


def _ago(age: timedelta) -> str:
    minutes = int(age / timedelta(minutes=1))
    return "just now" if minutes < 1 else f"{minutes} min ago" if minutes < 120 else f"{minutes // 60} h ago"
