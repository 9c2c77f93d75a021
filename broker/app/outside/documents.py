"""Launches outside gpubroker, as results. Money in USD."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Self

from broker.app.documents import Moment, Result, json_text
from broker.app.outside.launches import (
    PREFIX,
    OpenLaunch,
    end_launch,
    is_overdue,
    open_launches,
    spend_overdue,
    spend_overrun,
)
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money


class OutsideLaunchResult(Result):
    """A launch whose money is held ``until`` then, or until somebody reports its end. ``rate_usd``: an hour of all
    machines."""

    id: str
    tool: str
    user: str
    team: str | None
    project: str | None
    provider: str | None
    region: str | None
    capacity_type: CapacityType | None
    accelerator: str | None
    gpus: int
    money: MoneyKind
    held_usd: Money
    rate_usd: Money
    since: Moment
    until: Moment

    @classmethod
    def of(cls, launch: OpenLaunch) -> Self:
        return cls.from_parts(launch.tags, launch, tool=launch.tool.value)


class OverdueLaunch(Result):
    """A launch whose approved run time was over at ``until`` without a report of its end. Its machines may still run;
    ``spent_usd`` is what was held for the approved run time; ``noted``: since when it is recorded."""

    id: str
    tool: str
    user: str
    team: str | None
    machines: str
    since: Moment
    until: Moment
    spent_usd: Money
    noted: Moment

    @classmethod
    def noted_at(cls, launch: OpenLaunch, now: datetime) -> Self:
        tags = launch.tags
        gpus = f"{tags.gpus} × {tags.accelerator}" if tags.accelerator else "machines without accelerators"
        place = " ".join(part for part in (tags.provider, tags.region) if part)
        figures = {"machines": f"{gpus} at {place}", "spent_usd": launch.held, "noted": now}
        return cls.from_parts(tags, launch, tool=launch.tool.value, **figures)


class OutsideLaunchList(Result):
    """The launches made with other tools, oldest first; ``overdue``: those whose end nobody reported."""

    launches: list[OutsideLaunchResult]
    overdue: list[OverdueLaunch]


class SlurmAdmission(Result):
    """The answer to Slurm's plugin. ``id``: of the launch, by which its end is reported."""

    id: str


class OutsideEnd(Result):
    """What an ended launch cost. Zero for one that had ended before."""

    id: str
    cost_usd: Money


_KEY_PREFIX = "overdue/"  # prefix of the settings in which they are kept
_RETENTION = timedelta(days=30)


def end_overdue_launches(broker: Broker) -> Sequence[OpenLaunch]:
    """Spend the hold of every launch whose end should have been reported by now, and record it as overdue; delete
    records older than 30 days. Returns the launches that became overdue."""
    now = broker.clock.now()
    with broker.store.reading() as reader:
        newly_overdue = [launch for launch in open_launches(reader) if is_overdue(launch, now)]
    for launch in newly_overdue:  # first, so that every one that is spent is also shown
        record_overdue(broker, OverdueLaunch.noted_at(launch, now))
    if newly_overdue:
        spend_overdue(broker, newly_overdue)
    for recorded in overdue_launches(broker):
        if recorded.noted + _RETENTION <= now:
            broker.store.drop_setting(_KEY_PREFIX + recorded.id)
    return newly_overdue


def overdue_launches(broker: Broker) -> Sequence[OverdueLaunch]:
    """The overdue launches, the longest overdue first."""
    launches = [
        OverdueLaunch.model_validate_json(document) for document in broker.store.settings_under(_KEY_PREFIX).values()
    ]
    return sorted(launches, key=lambda launch: (launch.until, launch.id))


def record_overdue(broker: Broker, launch: OverdueLaunch) -> None:
    """Record an overdue launch. Idempotent."""
    broker.store.set_setting(_KEY_PREFIX + launch.id, json_text(launch))


def report_end(broker: Broker, id: str, ran: timedelta | None = None, *, by: Actor) -> Money:
    """As `end_launch`, and raises as it; the launch is then no longer overdue. What an overdue launch cost beyond the
    judged time, according to ``ran``, is spent now. Returns the cost (USD)."""
    full_id = id if id.startswith(PREFIX) else PREFIX + id
    cost = end_launch(broker, full_id, ran, by=by)
    if (document := broker.store.setting(_KEY_PREFIX + full_id)) is not None:
        if ran is not None:
            cost += spend_overrun(broker, full_id, OverdueLaunch.model_validate_json(document).since, ran, by=by)
        broker.store.drop_setting(_KEY_PREFIX + full_id)
    return cost
