"""Why a job runs where it does, from the record of the decision."""

from __future__ import annotations

from broker.app.results.why_here import PlacementDecision, PlacementDecisions
from broker.app.wiring import Broker
from broker.core.errors import StoreProblem
from broker.core.events.views import JobView
from broker.core.policy.decisions import Decision, inputs_of
from broker.core.policy.policy import ActionKind

_KINDS = (ActionKind.LAUNCH, ActionKind.RE_PLACE)


def why_here(broker: Broker, view: JobView, *, limit: int) -> PlacementDecisions:
    """The decisions among the job's newest ``limit`` that chose a placement, newest first, except those without
    recorded inputs. Raises `StoreProblem` for a record that was altered."""
    with broker.store.reading() as look:
        kept = look.decisions(job_id=view.id, limit=limit)
    found = [_told(one) for one in kept if one.action in _KINDS]
    return PlacementDecisions(id=view.id, decisions=[one for one in found if one is not None])


def _told(decision: Decision) -> PlacementDecision | None:
    try:
        inputs = inputs_of(decision)
    except ValueError as error:
        raise StoreProblem(
            str(error), hint="the store was changed by another program; restore it from a backup"
        ) from error
    placement = None if inputs is None else inputs.action.placement
    return None if inputs is None or placement is None else PlacementDecision.of(decision, inputs, placement)
