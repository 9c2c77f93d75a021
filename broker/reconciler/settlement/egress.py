"""What moving a job's data and checkpoints costs, posted once for each start of its machines. Pure.

Machine time is metered; what moves is not seen. So what the plan expected of one start is posted as spent when its
machines come up, and covers that moment. The providers' charges make up the difference later, as far as they are told
by attempt: sending checkpoints away is charged by the provider of the machines, with the tags of the machines. Data and
checkpoints that machines read are charged by where those lie, and never in the name of an attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from broker.core.events.views import AttemptView
from broker.core.job.placements import Moved, Placement
from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, Entry, Movement, Tags, move

_SENT = Moved.CHECKPOINT  # what the machines send; the others are what they read


def per_start(placement: Placement) -> Mapping[str, Money]:
    """What moving data and checkpoints is expected to cost for one start there (USD), by what is moved."""
    amounts = {
        term.moves.value: term.amount if term.per_start is None else term.per_start
        for term in placement.terms
        if term.moves is not None
    }
    return {what: amount for what, amount in amounts.items() if amount > Money.ZERO}


def to_be_posted(attempt: AttemptView, moved: Money) -> Mapping[str, Money]:
    """What of it is not posted yet; ``moved``: what was. All is posted at once, so that is everything or nothing. An
    attempt that turned out to have had no machine moved nothing."""
    return {} if moved or attempt.refused else per_start(attempt.placement)


def movements_of(
    attempt: AttemptView, amounts: Mapping[str, Money], held: Money, job_id: str, tags: Tags, now: datetime
) -> list[Entry]:
    """The movements that post these amounts for the start of the attempt: out of what is ``held`` as far as that goes,
    and beside it otherwise, as the providers will charge it all the same."""
    assert attempt.up_since is not None, "its machines are not up"
    found: list[Entry] = []
    left = max(held, Money.ZERO)
    for what, amount in amounts.items():
        covered = min(amount, left)
        left -= covered
        for movement, part in ((Movement.SETTLE, covered), (Movement.ADJUST, amount - covered)):
            found += move(
                movement,
                part,
                movement_id=f"{job_id}/{attempt.number}/{EGRESS}/{what}/{movement}",
                money=attempt.placement.money,
                at=now,
                covers=(attempt.up_since, attempt.up_since),
                tags=tags,
                note=f"{what} {EGRESS}",
            )
    return found


def charged_elsewhere(entries: Iterable[Entry]) -> Money:
    """What of these entries is egress that the provider of the machines does not charge for the attempt."""
    parts = ((entry, entry.movement_id.split("/")) for entry in entries)
    return sum((entry.amount for entry, id in parts if id[2:3] == [EGRESS] and id[3] != _SENT), Money.ZERO)
