"""Price watches, their alerts and recipients as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from broker.app.alerts.notify import Delivery, Targets, redact_address, setting_variable
from broker.app.results.values import Figure, Moment, Result, Seconds
from broker.core.market.offers import CapacityType
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.values.money import Money
from broker.store.outbox import Dispatch

if TYPE_CHECKING:
    from broker.app.alerts.watches import WatchEvaluation


class QueuedAlert(Result):
    """An alert to one recipient. ``next_try``: null once it was delivered or given up."""

    target: str
    status: Literal["delivered", "given_up", "waiting"]
    made_at: Moment
    delivered_at: Moment | None
    tries: int
    next_try: Moment | None
    error: str

    @classmethod
    def of(cls, dispatch: Dispatch) -> Self:
        return cls.from_parts(
            dispatch, status="delivered" if dispatch.delivered_at else "given_up" if dispatch.given_up else "waiting"
        )


class WatchResult(Result):
    """A watch and its state. ``holds``: null where it could not be evaluated; ``holds_for``: the providers that it
    holds for, of a watch on polls; ``rises_by``: a fraction."""

    name: str
    waits_for: str
    trigger: Trigger
    machines: list[str]
    providers: list[str]
    regions: list[str]
    capacity_types: list[CapacityType]
    price_per_gpu_hour: Money | None
    rises_by: Figure | None
    within_seconds: Seconds | None
    stale_after_seconds: Seconds | None
    targets: list[str]
    pause_seconds: Seconds
    made_at: Moment
    made_by: str
    holds: bool | None
    holds_for: list[str]
    seen: str
    since: Moment | None
    checked_at: Moment | None
    noticed_at: Moment | None
    notices: int
    deliveries: list[QueuedAlert]

    @classmethod
    def of(cls, watch: Watch, state: WatchState, dispatches: Sequence[Dispatch] = (), **extra: Any) -> Self:
        return cls.from_parts(
            watch,
            state,
            waits_for=watch.sentence,
            price_per_gpu_hour=watch.price,
            rises_by=watch.part,
            within_seconds=watch.within,
            stale_after_seconds=watch.age,
            pause_seconds=watch.pause,
            holds=bool(state.firing) if state.known else None,
            holds_for=[name for name in state.firing if name],
            notices=state.number,
            deliveries=dispatches,
            **extra,
        )


class AddedWatch(WatchResult):
    """A watch that was added. ``now``: the present state in words; ``holds_now``: whether its condition holds, so that
    the first check sends an alert; null if unknown."""

    now: str
    holds_now: bool | None

    @classmethod
    def of_look(cls, looked: WatchEvaluation) -> Self:
        holds = None if looked.seen.holds is None else bool(looked.seen.holds)
        return cls.of(looked.watch, looked.state, now=looked.seen.words, holds_now=holds)


class AlertRecipient(Result):
    """A recipient of alerts. ``address``: without its secret parts; ``setting``: the variable that sets it."""

    name: str
    address: str
    setting: str

    @classmethod
    def all_of(cls, targets: Targets) -> list[Self]:
        """Those of the settings."""
        return [
            cls(name=name, address=redact_address(target_address), setting=setting_variable(name))
            for name, target_address in targets.items()
        ]


class RemovedWatch(Result):
    """The name of the deleted watch."""

    removed: str


class AlertDelivery(Result):
    """One try to deliver an alert. ``address``: of the target, without its secret parts; empty if the settings do not
    name it. ``next_try_in_seconds``: null if there is none."""

    target: str
    address: str
    ok: bool
    title: str
    error: str
    next_try_in_seconds: Seconds | None

    @classmethod
    def of(cls, delivery: Delivery, targets: Targets) -> Self:
        address = redact_address(targets[delivery.target]) if delivery.target in targets else ""
        return cls.from_parts(delivery, address=address, next_try_in_seconds=delivery.next_try_in)


class WatchList(Result):
    """All watches, and the recipients of alerts. ``deliveries``: of alerts that were due, if they were checked now."""

    as_of: Moment
    watches: list[WatchResult]
    targets: list[AlertRecipient]
    deliveries: list[AlertDelivery]


class AlertTest(Result):
    """The deliveries of a test alert."""

    deliveries: list[AlertDelivery]

    @classmethod
    def of(cls, deliveries: Sequence[Delivery], targets: Targets) -> Self:
        return cls(deliveries=[AlertDelivery.of(delivery, targets) for delivery in deliveries])
