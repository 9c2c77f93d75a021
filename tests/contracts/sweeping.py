"""What a sweep over a cloud's machines must do, for all providers that can list and end machines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broker.app.service.sweep import end_orphans, sweep
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, Offer
from broker.core.ports import RunsInstances
from broker.core.values.money import Money
from broker.reconciler.sweep import LeftoverState
from broker.settings import Settings
from broker.store.jobs.journal import StoreWriter
from cli import registries
from tests.actors import EVERYBODYS
from tests.empty_store import empty_store

LONG_AGO = datetime.now(UTC) - timedelta(days=2)
OFFER = Offer("cloud", "r", None, "m", "H100", 8, CapacityType.SPOT, Money.usd("20"), LONG_AGO, "api", engine="nowhere")
PLACEMENT = Placement(OFFER, 1, Money.usd("20"), Money.usd("20"), (), None, None, 0.9, 1.0, 0.1)


def record_jobs(
    tx: StoreWriter, lasted: timedelta = timedelta(0), provider: str = "cloud", at: datetime = LONG_AGO
) -> None:
    """Record a job whose attempt runs, and one whose attempt ended long ago and lasted for ``lasted``."""
    placement = replace(PLACEMENT, offer=replace(OFFER, provider=provider))
    for job_id in ("runs", "over"):
        submitted = ev.Submitted(job=Job(name=job_id, run="x"), user="ann", max_duration_seconds=86400)
        tx.append(job_id, [(None, submitted)], at)
        tx.append(
            job_id,
            [
                (1, ev.LaunchRequested(key=f"{job_id}-1", engine="nowhere", placement=placement)),
                (1, ev.Launched(handle="h")),
                (1, ev.MachineUp(since=at)),
            ],
            at,
        )
    tx.append(
        "over",
        [
            (1, ev.AttemptEnded(cause=Cause.CANCELLED_BY_USER)),
            (1, ev.MachineGone(gone_at=at + lasted)),
            (None, ev.JobEnded(state=JobState.CANCELLED)),
            (None, ev.JobClosed()),
        ],
        at,
    )


@contextmanager
def broker_with(provider: RunsInstances, tmp_path: Path, lasted: timedelta = timedelta(0)) -> Iterator[Broker]:
    """A broker with this provider alone, a job whose attempt runs there, and one whose attempt ended long ago and
    lasted for ``lasted``.
    """
    name = provider.name  # type: ignore[attr-defined]  # every provider has one
    build: Any = lambda *_, **__: provider  # noqa: E731  # as `replace` names it
    plugged = replace(registries(), providers={name: ""}, local_providers=(), build_provider=build, engines={})
    home = tmp_path / "home"
    home.mkdir()
    broker = Broker(Settings(home=home, store=empty_store(home / "store.db")), plugged, EVERYBODYS)
    with broker.store.writing() as tx:
        record_jobs(tx, lasted, name)
    try:
        yield broker
    finally:
        broker.store.close()


def check_a_sweep(
    provider: RunsInstances, tmp_path: Path, start: Callable[[Mapping[str, str]], object], *, just_started: bool
) -> None:
    """``start``: starts a machine with these tags.

    ``just_started``: the cloud dates machines by the wall clock, so that they count as too young.
    """
    with broker_with(provider, tmp_path) as broker:
        ours = store_id(broker.store)
        start({"gpubroker": "runs-1", "gpubroker-store": ours})
        start({"gpubroker": "over-1", "gpubroker-store": ours})
        start({"gpubroker": "lost-7", "gpubroker-store": ours})
        start({"gpubroker": "over-1", "gpubroker-store": "f" * 12})
        start({"gpubroker": "whose-1"})
        start({"team": "somebody-elses"})
        if just_started:
            assert not sweep(broker).orphans, "they have only just come up"
        swept = sweep(broker, timedelta(0))
        assert swept.asked == (provider.name,)  # type: ignore[attr-defined]  # every provider has one
        told = sorted((one.key, one.standing) for one in swept.found)
        assert told == [
            ("lost-7", LeftoverState.ORPHAN),
            ("over-1", LeftoverState.ANOTHER_STORE),
            ("over-1", LeftoverState.ORPHAN),
            ("whose-1", LeftoverState.UNKNOWN_OWNER),
        ]
        before = {one.id for one in provider.instances()}
        assert list(end_orphans(broker, swept).values()) == ["", ""]
        ended = before - {one.id for one in provider.instances() if one.billed}
        assert ended == {one.machine.id for one in swept.orphans if one.machine is not None}
        assert list(end_orphans(broker, swept).values()) == ["", ""], "ended twice is ended once"
        assert {one.key for one in provider.instances() if one.billed} == {"runs-1", "over-1", "whose-1"}
        assert not sweep(broker, timedelta(0)).orphans
