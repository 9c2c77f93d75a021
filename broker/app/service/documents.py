"""The service, the sweep, the doctor and the demo as results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

from broker.app.documents import Figure, Moment, Result
from broker.app.providers import DoctorFinding, Health, ProviderSetup, is_healthy
from broker.app.service.sweep import SweepResult
from broker.core.events.outcomes import JobState
from broker.core.values.money import Money
from broker.reconciler.sweep import Leftover, LeftoverKind, LeftoverState
from broker.store.engine.copies import StoreCopy


class DoctorReport(Result):
    """The checks of this machine. ``is_healthy``: no finding is a problem."""

    healthy: bool
    findings: list[DoctorFinding]
    providers: list[ProviderSetup]

    @classmethod
    def of(cls, findings: Sequence[DoctorFinding]) -> Self:
        setups = [setup for finding in findings if (setup := finding.facts.get("setup")) is not None]
        return cls.model_validate({"healthy": is_healthy(findings), "findings": findings, "providers": setups})


class SetupReport(Result):
    """The steps of `gpubroker setup`. ``ready``: jobs can start on the cloud; with ``dry_run``: once the steps whose
    facts say ``planned`` are done."""

    cloud: str
    ready: bool
    dry_run: bool
    findings: list[DoctorFinding]

    @classmethod
    def of(cls, cloud: str, findings: Sequence[DoctorFinding], *, dry_run: bool) -> Self:
        ready = all(finding.health is Health.OK for finding in findings if finding.area != "job")
        return cls(cloud=cloud, ready=ready, dry_run=dry_run, findings=list(findings))


class LeftoverResult(Result):
    """An orphan, or a possible orphan: a machine, an attempt or a hold. ``standing``: what may be done about it; only
    an ``orphan`` can be ended. ``amount``: USD held."""

    id: str
    kind: LeftoverKind
    standing: LeftoverState
    job: str
    key: str | None
    since: Moment | None
    why: str
    about: str
    place: str | None
    store: str | None
    amount: Money | None
    ended: bool
    error: str | None

    @classmethod
    def of(cls, leftover: Leftover, errors: Mapping[str, str]) -> Self:
        return cls.from_parts(
            leftover,
            job=leftover.job_id,
            key=leftover.key or None,
            about=_about(leftover),
            place=leftover.machine.place if leftover.machine else None,
            store=leftover.machine.store or None if leftover.machine else None,
            amount=leftover.held.amount if leftover.held else None,
            ended=leftover.id in errors and not errors[leftover.id],
            error=errors.get(leftover.id) or None,
        )


class SweepReport(Result):
    """The result of a sweep. ``asked``: the engines and providers that answered; ``trouble``: those that did not, with
    the reason; ``orphans``: how many may be ended."""

    at: Moment
    store: str
    asked: list[str]
    trouble: dict[str, str]
    without_login: list[str]
    orphans: int
    found: list[LeftoverResult]

    @classmethod
    def of(cls, swept: SweepResult, errors: Mapping[str, str] = MappingProxyType({})) -> Self:
        """``errors``: as `end_orphans` returns them."""
        return cls.from_parts(
            swept, orphans=len(swept.orphans), found=[LeftoverResult.of(entry, errors) for entry in swept.found]
        )


def _about(leftover: Leftover) -> str:
    if leftover.held is not None:
        return f"{leftover.held.amount} {leftover.held.money}"
    return leftover.machine.about if leftover.machine is not None else f"attempt {leftover.attempt}"


class PolledTotals(Result):
    """The polls of one provider by a service."""

    provider: str
    polls: int
    failed: int
    offers_changed: int


class ReconciledTotals(Result):
    """The number of reconciler passes, and how many steps it took."""

    looks: int
    steps: int


class ServiceReport(Result):
    """The work of a service until it was stopped."""

    providers: list[PolledTotals]
    jobs: ReconciledTotals


class ReconcileReport(Result):
    """``reconciled``: false if another process reconciles this store. ``log``: the file that has the details."""

    reconciled: bool
    log: Path


class DemoReport(Result):
    """The figures of the demo. Money in simulated USD; ``savings``: against the same work on the cheapest on-demand
    machine, negative if spot cost more."""

    simulated: Literal[True] = True
    job_id: str
    job_state: JobState
    attempts: int
    interruptions: int
    failures: int
    resumed_from_step: int
    steps: int
    steps_redone: int
    cost: Money
    on_demand_cost: Money
    savings: Money
    savings_percent: Figure
    held: Money
    ledger_balanced: bool
    seed: int
    speed: Figure
    simulated_seconds: Figure
    home: Path


class RestoredStoreResult(Result):
    """A restored store. ``restored``: the copy that was put back; ``previous``: a copy of what was there before."""

    restored: StoreCopy
    previous: StoreCopy
