"""Completion of names in the shell, after `--install-completion`: accelerators, providers, regions, jobs and their
states. Starts no process and sends no request. What cannot be read is not completed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.wiring import Broker

_MAX_JOBS = 100  # jobs
log = logging.getLogger(__name__)


def gpus(context: typer.Context, incomplete: str) -> list[str]:
    """Canonical names of accelerators."""
    from broker.core.market.accelerators import accelerator_names

    return _starting_with(accelerator_names(), incomplete)


def states(context: typer.Context, incomplete: str) -> list[str]:
    """States of jobs."""
    from broker.core.events.outcomes import JobState

    return _starting_with((state.value for state in JobState), incomplete)


def capacity_types(context: typer.Context, incomplete: str) -> list[str]:
    """How capacity is bought."""
    from broker.core.market.offers import CapacityType

    return _starting_with((kind.value.replace("_", "-") for kind in CapacityType), incomplete)


def providers(context: typer.Context, incomplete: str) -> list[str]:
    """Providers that are set up, and those of stored prices."""

    def names(broker: Broker) -> list[str]:
        with broker.store.reading() as reader:
            return sorted({*broker.registries.providers, *reader.names_in_market("provider")})

    return _starting_with(_read_names(context, names), incomplete)


def regions(context: typer.Context, incomplete: str) -> list[str]:
    """Regions of stored prices."""
    return _complete_from_market("region", context, incomplete)


def instance_types(context: typer.Context, incomplete: str) -> list[str]:
    """Machine types of stored prices."""
    return _complete_from_market("instance_type", context, incomplete)


def price_kinds(context: typer.Context, incomplete: str) -> list[str]:
    """Kinds of price, by how far it can be trusted."""
    from broker.app.market.offer_rows import PRICE_KINDS

    return _starting_with(PRICE_KINDS, incomplete)


def teams(context: typer.Context, incomplete: str) -> list[str]:
    """Teams of jobs."""
    return _complete_from_jobs("team", context, incomplete)


def users(context: typer.Context, incomplete: str) -> list[str]:
    """People who submitted jobs."""
    return _complete_from_jobs("user", context, incomplete)


def _complete_from_market(field_name: str, context: typer.Context, incomplete: str) -> list[str]:
    def names(broker: Broker) -> list[str]:
        with broker.store.reading() as reader:
            return sorted(reader.names_in_market(field_name))

    return _starting_with(_read_names(context, names), incomplete)


def _complete_from_jobs(field_name: str, context: typer.Context, incomplete: str) -> list[str]:
    def names(broker: Broker) -> list[str]:
        with broker.store.reading() as reader:
            return sorted(reader.names_in_jobs()[field_name])

    return _starting_with(_read_names(context, names), incomplete)


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the newest jobs, and IDs with that prefix."""

    def names(broker: Broker) -> list[str]:
        with broker.store.reading() as reader:
            ids = reader.jobs_begun(incomplete, limit=_MAX_JOBS) if incomplete else ()
            return [view.job.name for view in reader.jobs(limit=_MAX_JOBS)] + [view.id for view in ids]

    return _starting_with(_read_names(context, names), incomplete)


def _read_names(context: typer.Context, load_names: Callable[[Broker], list[str]]) -> list[str]:
    try:
        return load_names(Terminal.of(context).broker(look_after=False))
    except Exception:  # a traceback would appear in the line that the user is typing
        log.debug("nothing to complete with", exc_info=True)
        return []


def _starting_with(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
