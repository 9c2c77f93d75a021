"""The people in the tests, the account under which tests run jobs, and their clock."""

from datetime import UTC, datetime, timedelta

from broker.app.wiring import Broker
from broker.core.actors import Actor, ProcessAccount, Role
from broker.core.values.clock import Clock, ManualClock


def person(name: str) -> Actor:
    """A person without a role."""
    return Actor(name)


ANN, BOB, OLGA = person("ann"), person("bob"), person("olga")
ROOT = Actor("root", frozenset({Role.ADMINISTRATOR}))

# Tests act as several people from one account.
EVERYBODYS = ProcessAccount("ann", for_others=True)


def under(account: ProcessAccount, broker: Broker) -> Broker:
    """A broker over the same store, as a process of that account has it."""
    return Broker(broker.settings, broker.registries, account, store=broker.store)


def with_clock(broker: Broker, clock: Clock) -> Broker:
    """A broker over the same store with that clock."""
    return Broker(broker.settings, broker.registries, broker.account, store=broker.store, clock=clock)


def mid_month() -> ManualClock:
    """A clock at which what a job holds for a day belongs to one month, whenever the tests run: never ahead of them, as
    a request of today would have expired then."""
    now = datetime.now(UTC)
    return ManualClock((now if now.day > 15 else now - timedelta(days=20)).replace(day=15, hour=6))
