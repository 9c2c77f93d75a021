"""The broker's decisions about a class of jobs (its plan and its place in the queue), once for each version of the
market. The functions are those that decide for real jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import count_reasons
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Verdict
from broker.core.ports import BudgetSpec, PolicySet
from broker.placement.offer_index import Board
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.run_model import Effort
from broker.placement.queue.queue import QueueEntry, entry_of
from broker.reconciler.admission.admission import Admission, denials
from tests.lab.simulation.market import SimulatedMarket
from tests.lab.simulation.workload import ENGINE, JobClass

# Simulated machines support everything that a job may need.
_HONOURS = frozenset(
    {
        *("several_nodes", "workdir", "setup", "file_mounts", "secrets", "image", "disk_tier", "network_tier"),
        *("skypilot_config", "another_machine"),
    }
)


def conditions_under(policy: PolicySet) -> Conditions:
    """The planner's conditions under these policies."""
    defaults = policy.defaults
    return Conditions(
        engines={ENGINE: _HONOURS},
        allow_reference_prices=defaults.allow_reference_prices,
        allow_stale_prices=True,
        cpu_jobs_on_gpus=defaults.cpu_jobs_on_gpus,
        value_of_time=defaults.value_of_time,
        default_max_duration=defaults.max_duration,
    )


@dataclass(frozen=True, slots=True)
class ClassDecision:
    """``plan``: over all capacity, busy or not. ``entry``: its place in the queue, for one job of the class. ``by_id``:
    the placements by offer. ``refused``: the reason why nothing can serve it; empty if something can."""

    plan: Plan
    entry: QueueEntry
    by_id: Mapping[str, Placement]
    refused: str = ""


class ClassDecisions:
    """The decisions in force, each made when it is first asked for."""

    def __init__(self, market: SimulatedMarket, policy: PolicySet, classes: tuple[JobClass, ...]) -> None:
        self._market = market
        self._policy = policy
        self._classes = classes
        self._common = conditions_under(policy)
        self._version = -1
        self._board: Board | None = None
        self._made: dict[int, ClassDecision] = {}
        self.made = 0
        self.conditions = [replace(self._common, capacity_order=policy.capacity_order(one.job)) for one in classes]
        self.efforts = [Effort.of(one.job, known) for one, known in zip(classes, self.conditions, strict=True)]
        self.budgets: list[tuple[BudgetSpec, ...]] = [tuple(policy.budgets(one.job, one.user)) for one in classes]
        self.max_durations = [one.job.max_duration or policy.defaults.max_duration for one in classes]

    def of(self, place: int, now: datetime) -> ClassDecision:
        """The decision about a class at the present prices. ``now``: UTC."""
        if self._version != self._market.version or self._board is None:
            self._version = self._market.version
            self._board = Board.of(self._market.offers, self._common.hazard)
            self._made = {}
        known = self._made.get(place)
        if known is None:
            known = self._made[place] = self._decide(place, now, self._board)
            self.made += 1
        return known

    def _decide(self, place: int, now: datetime, board: Board) -> ClassDecision:
        one, conditions = self._classes[place], self.conditions[place]
        window = (now, now + self.max_durations[place])
        action = Action(ActionKind.LAUNCH, one.job, one.user, window=window)
        deny = denials(self._policy, action, Facts(now))
        plan = make_plan(one.job, self._market.offers, now=now, submitted_at=now, conditions=conditions, deny=deny)
        entry = entry_of(one.name, one.job, board, now=now, submitted_at=now, conditions=conditions, deny=deny)
        refused = "" if plan.placements else _why_nothing(plan)
        return ClassDecision(plan, entry, {one.offer.id: one for one in plan.placements}, refused)

    def expected_end(self, placement: Placement, started: int, left: timedelta) -> int:
        """The second at which the broker expects machines back that a job gets now."""
        lasts = placement.duration or left
        return started + round(min(lasts, left).total_seconds())


def _why_nothing(plan: Plan) -> str:
    """The policies' objection if there is one, else the rarest reason, because most offers are of another kind."""
    denied = [one.objection for one in plan.rejections if one.objection is not None]
    if denied:
        return f"{denied[0].name or denied[0].rule}: {denied[0].code}"
    counts = count_reasons(plan.rejections)
    rarest = max(counts, key=lambda reason: (-counts[reason], reason), default=None)
    return f"no capacity: {rarest}" if rarest else "no capacity"


class WholeHolds:
    """Policies whose holds cover the whole time limit: nothing is topped up in a simulation."""

    def __init__(self, policy: PolicySet) -> None:
        self._policy = policy
        self.defaults = replace(policy.defaults, hold_quantile=100.0)

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)


def objection_of(admission: Admission) -> str:
    """The reason for which the gate refuses a job, as a code that can be counted."""
    objections = admission.objections
    denied: Verdict | None = next((one for one in objections if one.answer is Answer.DENY), None)
    found = denied or next(iter(objections), None)
    if found is None:
        return "max_cost: too little for a start"
    return f"{found.name or found.rule}: {'approval needed' if found.answer is Answer.ASK else found.code}"
