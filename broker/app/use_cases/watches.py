"""Watches on prices: alerts when prices, availability or the age of prices change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from broker.app.access import people
from broker.app.access.callers import Caller
from broker.app.market import watches
from broker.app.market.offer_rows import OfferFilter
from broker.app.market.watches import RemovedWatch, WatchList, WatchResult
from broker.core.access.api_tokens import AuditRecord
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.market.offers import CapacityType
from broker.core.market.watches import Trigger, Watch
from broker.core.values.money import Money

_OF_TRIGGER = {Trigger.BELOW: "price", Trigger.RISES: "rises_by", Trigger.STALE: "stale_after_seconds"}
_MAX_OWN = 50  # watches of a person that the API makes
Texts = Annotated[Sequence[Annotated[str, Field(max_length=100)]], Field(max_length=50)]
Seconds = Annotated[int, Field(ge=60, le=90 * 86_400)]


@dataclass(frozen=True)
class WatchTerms:
    """What is watched, and who is told."""

    trigger: Trigger
    gpu: Annotated[Texts, Field(description="`H100`, `H100:8`, `cpu`; none: all.")] = ()
    provider: Texts = ()
    region: Texts = ()
    capacity_type: Annotated[Sequence[CapacityType], Field(max_length=10)] = ()
    price: Annotated[Decimal | None, Field(gt=0, description="Of a GPU-hour in USD, of `below`.")] = None
    rises_by: Annotated[float | None, Field(gt=0, le=1_000, description="A fraction, of `rises`.")] = None
    within_seconds: Annotated[Seconds, Field(description="Compared with then, of `rises`.")] = 86_400
    stale_after_seconds: Annotated[Seconds | None, Field(description="Without a poll, of `stale`.")] = None
    targets: Annotated[Texts, Field(description="Recipients, by their names in the settings; none: all.")] = ()
    pause_seconds: Annotated[int, Field(ge=0, le=90 * 86_400, description="Between two alerts.")] = 3_600

    def watch(self, name: str, by: Caller) -> Watch:
        """The watch. Raises `InvalidInput`, `UnknownName`."""
        for trigger, field in _OF_TRIGGER.items():
            if (getattr(self, field) is not None) != (trigger is self.trigger):
                needed = "needs it" if trigger is self.trigger else "has none"
                raise InvalidInput(f"a watch of the trigger {self.trigger} {needed}", where=field)
        machines: dict[str, Any] = {
            key: list(getattr(self, key)) for key in ("gpu", "provider", "region", "capacity_type")
        }
        return watches.watch_of(
            OfferFilter.of(machines),
            name=name,
            trigger=self.trigger,
            made_at=by.broker.clock.now(),
            made_by=by.actor.identity,
            price=None if self.price is None else Money.usd(self.price),
            part=self.rises_by,
            within=timedelta(seconds=self.within_seconds) if self.trigger is Trigger.RISES else None,
            age=None if self.stale_after_seconds is None else timedelta(seconds=self.stale_after_seconds),
            targets=tuple(dict.fromkeys(target.lower() for target in self.targets)),
            pause=timedelta(seconds=self.pause_seconds),
        )


def list_watches(by: Caller) -> WatchList:
    """All watches with their states; for those who see people also the recipients of alerts."""
    result = watches.list_watches(by.broker)
    return result if by.access.anywhere(Permission.SEE_PEOPLE) else result.model_copy(update={"targets": []})


def show_watch(by: Caller, watch: str) -> WatchResult:
    """One watch with its state."""
    for result in list_watches(by).watches:
        if result.name == watch:
            return result
    raise UnknownName("watch", watch, (known.name for known, _ in by.broker.store.watches.all()))


def set_watch(by: Caller, watch: str, terms: WatchTerms) -> WatchResult:
    """Watch prices on these terms; they replace those of one's own watch of that name. Status 201: it is new. Again: no
    effect."""
    earlier, made = _changeable(by, watch), terms.watch(watch, by)
    if earlier is not None:
        made = replace(made, made_by=earlier.made_by)
    elif sum(other.made_by == made.made_by for other, _ in by.broker.store.watches.all()) >= _MAX_OWN:
        raise NotAllowed(f"{made.made_by} has {_MAX_OWN} watches already", hint="remove one")
    if earlier is None or earlier != replace(made, made_at=earlier.made_at):
        watches.add(by.broker, made, replaces=earlier is not None)
        _log(by, "watches.set", watch, earlier, made.sentence)
    return show_watch(by, watch)


def remove_watch(by: Caller, watch: str) -> RemovedWatch:
    """Delete a watch of one's own. Its queued alerts are still sent."""
    earlier = _changeable(by, watch)
    watches.remove(by.broker, watch)
    _log(by, "watches.remove", watch, earlier, "removed")
    return RemovedWatch(removed=watch)


def _changeable(by: Caller, name: str) -> Watch | None:
    """The watch of that name, if there is one. Raises `NotAllowed` for another person's."""
    watch = next((known for known, _ in by.broker.store.watches.all() if known.name == name), None)
    if watch is not None and not by.actor.may_act_for(watch.made_by):
        raise NotAllowed(f"the watch {name} is {watch.made_by}'s", hint=f"choose another name, or ask {watch.made_by}")
    return watch


def _log(by: Caller, action: str, name: str, before: Watch | None, after: str) -> None:
    sentence, now = before.sentence if before else "", by.broker.clock.now()
    people.log(by.broker, AuditRecord.by(by.actor, now, action, name, before=sentence, after=after))
