"""The true spend, from the cloud's own record of machines and prices, and the part of it that the broker could not
prevent, called slack. Nothing here reads the ledger.

Only the slack may exceed a limit:

* spot prices: the cost of a rise until the first tick that could know of it, and for the time that stopping takes then
  (two minutes were held for that at the previous price);
* machines without a running agent, which obey no lease: their cost after the time until which they were paid, until the
  second tick that nothing disturbed and in which no call failed. A request to stop does not shorten that time: the
  money stays held until the machine is gone.

A machine with a running agent at a fixed price has no slack.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import egress_rate
from tests.money.cloud import CloudMachine
from tests.money.world import MoneyWorld

MICROSECOND = timedelta(microseconds=1)
HOUR = 3_600_000_000
GRACE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Piece:
    """An amount (micro-dollars) that was spent evenly from ``since`` to ``until`` (UTC)."""

    since: datetime
    until: datetime
    amount: Fraction

    def within(self, begins: datetime, ends: datetime) -> Fraction:
        """The part of it in that half-open period."""
        if self.until <= self.since:
            return self.amount if begins <= self.since < ends else Fraction(0)
        shared = min(self.until, ends) - max(self.since, begins)
        if shared <= timedelta(0):
            return Fraction(0)
        return self.amount * Fraction(shared // MICROSECOND, (self.until - self.since) // MICROSECOND)


def _cost(rate: Money, nodes: int, since: datetime, until: datetime) -> Piece:
    return Piece(since, until, Fraction(rate.micros * nodes * ((until - since) // MICROSECOND), HOUR))


def total(pieces: list[Piece]) -> Fraction:
    return sum((piece.amount for piece in pieces), Fraction(0))


class Oracle:
    """The oracle of a world in its present state."""

    def __init__(self, world: MoneyWorld) -> None:
        self.world = world

    def machines(self, job: str | None = None) -> list[CloudMachine]:
        """The machines that cost cash, of the job with that name (None: of all)."""
        return [
            machine
            for machine in self.world.cloud.machines.values()
            if machine.launch.placement.money is MoneyKind.CASH and job in (None, machine.launch.job.name)
        ]

    def bill(self, machine: CloudMachine) -> list[Piece]:
        """The provider's bill for it: machine time, and data that it read from elsewhere."""
        end = machine.gone_at or self.world.clock.true
        end = min(end, self.world.clock.true) if machine.gone_at is None else end
        offer, nodes = machine.launch.placement.offer, machine.launch.placement.nodes
        if end <= machine.since or machine.unfounded:
            return []
        found = list(self._moved(machine))
        elapsed = end - machine.since
        if machine.interrupted and elapsed < offer.billing.free_if_interrupted_within:
            return found
        pieces = [_cost(rate, nodes, a, b) for rate, a, b in self._rates(machine, machine.since, end)]
        if machine.gone_at is not None:
            billed = max(elapsed, offer.billing.minimum)
            step = offer.billing.granularity
            billed = -(-billed // step) * step
            last = self._rate_at(machine, max(end - MICROSECOND, machine.since))
            tail = _cost(last, nodes, machine.since, machine.since + (billed - elapsed)).amount
            at = max(end - MICROSECOND, machine.since)
            pieces.append(Piece(at, at, tail))
        return found + pieces

    def _moved(self, machine: CloudMachine) -> Iterator[Piece]:
        """The data is read once per start, by all nodes together."""
        data = machine.launch.job.data
        if data.location and data.size:
            per_gb = egress_rate(data.location, machine.launch.placement.offer.location).per_gb
            yield Piece(machine.since, machine.since, Fraction(per_gb.micros * data.size, 10**9))

    def _rate_at(self, machine: CloudMachine, moment: datetime) -> Money:
        line = self.world.market.line_of(machine.launch.placement.offer)
        spot = machine.launch.placement.offer.capacity_type is CapacityType.SPOT
        return line.at(moment if spot else machine.submitted)

    def _rates(
        self, machine: CloudMachine, since: datetime, until: datetime
    ) -> Iterator[tuple[Money, datetime, datetime]]:
        line = self.world.market.line_of(machine.launch.placement.offer)
        changes = [at for at, _ in line.true if since < at < until]
        edges = [since, *changes, until]
        for a, b in pairwise(edges):
            yield self._rate_at(machine, a), a, b

    # --- what could not be helped -----------------------------------------------------------------------------------

    def slack(self, machine: CloudMachine) -> list[Piece]:
        """The part of its bill that the broker could not prevent."""
        return [*self._unknown_prices(machine), *self._unheeded(machine)]

    def _unknown_prices(self, machine: CloudMachine) -> Iterator[Piece]:
        placement = machine.launch.placement
        line, nodes = self.world.market.line_of(placement.offer), placement.nodes
        end = min(machine.gone_at or self.world.clock.true, self.world.clock.true)
        if placement.offer.capacity_type is not CapacityType.SPOT:
            over = line.at(machine.submitted) - line.known(machine.submitted)
            if over > Money.ZERO and end > machine.since:
                step = placement.offer.billing.granularity
                yield _cost(over, nodes, machine.since, end)
                # The rest of the last step belongs to the last moment, as in the bill.
                last = max(end - MICROSECOND, machine.since)
                yield Piece(last, last, _cost(over, nodes, end, end + step).amount)
            return
        looks = self.world.looks
        # The ticks that learned of a new price, with that price.
        learned: list[tuple[datetime, Money]] = [(machine.submitted, line.known(machine.submitted))]
        for told in line.told:
            number = bisect_right(looks, told)
            if number < len(looks) and machine.submitted < looks[number] < end:
                learned.append((looks[number], line.known(looks[number])))
        learned.sort(key=lambda pair: pair[0])
        edges = sorted({machine.since, end, *(at for at, _ in line.true), *(at for at, _ in learned)})
        for a, b in pairwise(edges):
            if a < machine.since or b > end:
                continue
            known = learned[max(bisect_right(learned, a, key=lambda pair: pair[0]) - 1, 0)][1]
            if line.at(a) > known:
                yield _cost(line.at(a) - known, nodes, a, b)
        for (_, before), (at, after) in pairwise(learned):
            if after > before:
                yield _cost(after - before, nodes, at, at + GRACE)

    def _paid_until(self, machine: CloudMachine) -> tuple[datetime, datetime] | None:
        """When an agent that obeys its lease would have stopped for lack of money, and when it would have stopped at
        all: if it was told to stop earlier, the money lasts as the previous lease says.
        """
        written = self.world.folders.leases.get(machine.key, [])
        paid: datetime | None = None
        for number, (lease, at) in enumerate(written):
            if lease.stop is not None and paid is not None:
                return max(paid, at), at
            paid = lease.paid_until
            until = written[number + 1][1] if number + 1 < len(written) else None
            if paid is not None and (until is None or paid <= until):
                return max(paid, at), max(paid, at)
        return None

    def _mute(self, machine: CloudMachine, end: datetime) -> tuple[datetime, datetime] | None:
        """The time in which no agent existed that could have stopped it: before the agent started, or after it died."""
        stops = timedelta(seconds=machine.fate.stops)
        if machine.agent_from is None or machine.agent_from >= end:
            return machine.since, end
        if machine.agent_died is not None:
            return machine.agent_died, end
        return machine.since, min(machine.agent_from + stops, end)

    def _unheeded(self, machine: CloudMachine) -> Iterator[Piece]:
        found = self._paid_until(machine)
        end = min(machine.gone_at or self.world.clock.true, self.world.clock.true)
        if found is None or end <= found[0]:
            return
        paid, stops = found
        mute = self._mute(machine, end)
        if mute is None:
            return
        since, heard = max(paid, mute[0]), mute[1]
        looks = self.world.looks
        # This tick tells it to stop; once its grace is over, the next tick ends it.
        first = bisect_right(looks, max(stops, mute[0]) + GRACE)
        second = bisect_left(looks, looks[first] + GRACE) if first < len(looks) else first
        until = min(heard, looks[second] + GRACE) if second < len(looks) else heard
        until = min(max(until, since + GRACE), heard)
        if until > since:
            step = machine.launch.placement.offer.billing.granularity
            for rate, a, b in self._rates(machine, since, until):
                yield _cost(rate, machine.launch.placement.nodes, a, b)
            yield _cost(self._rate_at(machine, since), machine.launch.placement.nodes, since, since + step)
