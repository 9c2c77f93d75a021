"""The strategy's first move for a planned job, determined by the code that the reconciler runs."""

from __future__ import annotations

from functools import partial

from broker.app.jobs.preview import FirstMove
from broker.app.jobs.queue import as_if_submitted
from broker.app.market.market import market_for
from broker.app.market.strategy_history import record
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.jobs import Job
from broker.core.ports import PolicySet
from broker.reconciler.controllers.placement import Placing
from broker.reconciler.controllers.strategy_advice import Strategist


def first_move(broker: Broker, job: Job, policy: PolicySet, *, by: Actor) -> FirstMove | None:
    """The strategy's first decision if the job were submitted now; None: the plan's ranking applies. Changes
    nothing."""
    (view,), now = as_if_submitted(broker, [job], by=by), broker.clock.now()
    placing = Placing(broker.store, lambda one: market_for(broker, one, policy), lambda: policy)
    advice = Strategist(partial(record, broker.store)).place(view, placing.plans(view, policy, now), now)
    if advice is None:
        return None
    return FirstMove(advice.placements[0] if advice.placements else None, advice.why)
