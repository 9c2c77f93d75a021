"""The cost of moving a job's data and checkpoints, posted once per start of its machines. Pure.

Machine time is metered, traffic is not. So the expected cost of one start by the plan is posted as spent when its
machines come up, dated at that moment. Providers' charges correct it later, as far as they are reported by attempt: the
machines' provider charges for uploaded checkpoints, with the tags of the machines. Data and checkpoints that machines
read are charged by the provider that stores them, without reference to an attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from broker.core.events.views import AttemptView
from broker.core.job.placements import Moved, Placement
from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, Entry, Movement, Tags, move

_SENT = Moved.CHECKPOINT  # sent by the machines; the others are read by them


def per_start(placement: Placement) -> Mapping[str, Money]:
    """The expected cost of moving data and checkpoints for one start there (USD), by what is moved."""
    amounts = {
        term.moves.value: term.amount if term.per_start is None else term.per_start
        for term in placement.terms
        if term.moves is not None
    }
    return {what: amount for what, amount in amounts.items() if amount > Money.ZERO}


def to_be_posted(attempt: AttemptView, moved: Money) -> Mapping[str, Money]:
    """The part that is not posted yet; ``moved``: the posted part.

    All is posted at once, so the result is everything or nothing. An attempt that had no machine moved nothing.
    """
    return {} if moved or attempt.refused else per_start(attempt.placement)


def movements_of(
    attempt: AttemptView, amounts: Mapping[str, Money], held: Money, job_id: str, tags: Tags, now: datetime
) -> list[Entry]:
    """The movements that post these amounts for the start of the attempt: up to ``held`` (USD) from the hold, the rest
    as adjustments, as providers charge it in any case.
    """
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
    """The egress in these entries that the machines' provider does not charge to the attempt (USD)."""
    parts = ((entry, entry.movement_id.split("/")) for entry in entries)
    return sum((entry.amount for entry, id in parts if id[2:3] == [EGRESS] and id[3] != _SENT), Money.ZERO)
