"""The coverage of approvals that were recorded without facts, derived from the job's events. Pure.

Such an approval covers only the placement it led to: the next requested attempt, or the running attempt if more money
or time was approved for it. Without such an attempt it covers no place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from broker.core.events.events import Event, LaunchRequested
from broker.core.events.lifecycle import advance
from broker.core.events.views import JobView
from broker.core.job.placements import Placement
from broker.core.policy.coverage import known_of
from broker.core.policy.policy import Grant


def with_placements(grants: Sequence[Grant], events: Iterable[Event]) -> tuple[Grant, ...]:
    """The job's grants; those without facts with the facts of the placement that they led to. ``events``: its whole
    stream."""
    view: JobView | None = None
    led_to: list[Placement | None] = []
    for event in events:
        view = advance(view, event)
        if isinstance(event.body, LaunchRequested):
            led_to = [place or event.body.placement for place in led_to]
        under_way = view.latest if view.latest is not None and not view.latest.state.final else None
        led_to += [under_way.placement if under_way else None] * (len(view.grants) - len(led_to))
    if view is None:
        return tuple(grants)
    return tuple(
        replace(grant, facts=dict.fromkeys(grant.rules, known_of(view.job, place)))
        if grant.facts is None and place is not None
        else grant
        for grant, place in zip(grants, led_to, strict=True)
    )
