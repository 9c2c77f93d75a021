"""Launches outside gpubroker, as results. Money in USD."""

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from broker.app.documents import Moment, Result
from broker.app.outside.launches import OpenLaunch
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
    def noted_at(cls, one: OpenLaunch, now: datetime) -> Self:
        tags = one.tags
        gpus = f"{tags.gpus} × {tags.accelerator}" if tags.accelerator else "machines without accelerators"
        place = " ".join(part for part in (tags.provider, tags.region) if part)
        figures = {"machines": f"{gpus} at {place}", "spent_usd": one.held, "noted": now}
        return cls.from_parts(tags, one, tool=one.tool.value, **figures)


class OutsideLaunchList(Result):
    """The launches made with other tools, oldest first; ``overdue``: those whose end nobody reported."""

    launches: list[OutsideLaunchResult]
    overdue: list[OverdueLaunch]

    @classmethod
    def of(cls, open_launches: Iterable[OpenLaunch], overdue_launches: Iterable[OverdueLaunch]) -> Self:
        return cls(
            launches=[OutsideLaunchResult.of(launch) for launch in open_launches], overdue=list(overdue_launches)
        )


class SlurmAdmission(Result):
    """The answer to Slurm's plugin. ``id``: of the launch, by which its end is reported."""

    id: str


class OutsideEnd(Result):
    """What an ended launch cost. Zero for one that had ended before."""

    id: str
    cost_usd: Money
