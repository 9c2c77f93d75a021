"""Names of providers in a job that nobody here knows: misspelt, perhaps, so that nothing can be found."""

from __future__ import annotations

from collections.abc import Iterator

from broker.app.wiring import Broker
from broker.core.errors import did_you_mean
from broker.core.job.jobs import Job

_WILD = set("*?[")


def unknown_providers(broker: Broker, job: Job) -> Iterator[str]:
    """One sentence for each provider that the job names and that neither is registered nor was ever priced here."""
    named = [*((request.infra or "*").partition("/")[0] for request in job.resources), *job.constraints.providers]
    plain = [name for name in dict.fromkeys(named) if not _WILD & set(name)]
    if all(name in broker.registries.providers for name in plain):
        return
    known = {*broker.registries.providers, *(series.offer.provider for series in broker.store.market.series())}
    for name in plain:
        if name not in known:
            meant = did_you_mean(name, known) or "; `gpubroker offers --group-by provider` lists those that are known"
            yield f"no provider {name!r} is known here{meant}"
