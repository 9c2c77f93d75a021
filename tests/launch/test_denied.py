"""Why a job waits that the policy lets go nowhere: in the rule's words, said once, and not where it waits its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from broker.core import events as ev
from broker.core.clock import ManualClock
from broker.core.offers import CapacityType
from broker.core.outcomes import JobState
from broker.core.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.store import Store
from tests.launch.rehearsal import MINUTE, OpenPolicy, Stage
from tests.launch.test_reconciler import running


@dataclass
class Shut(OpenPolicy):
    """Lets nothing start again; says since when, and of which zone where ``by_zone``."""

    clock: ManualClock | None = None
    by_zone: bool = False

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        zone = action.placement.offer.zone if action.placement else ""
        says = f"{zone} is shut" if self.by_zone else f"it is {facts.now:%H:%M}, too late"
        line = 7 if self.by_zone and zone == "od" else 3
        answer = Answer.DENY if action.kind is ActionKind.RE_PLACE else Answer.ALLOW
        return [Verdict(answer, "hours", "test", says, Source("team.yaml", line), "hours")]


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    stage = Stage(store, clock)
    stage.engine.take_back(running(stage))
    return stage


def said(stage: Stage) -> list[str]:
    with stage.store.reading() as look:
        return [e.body.denied for e in look.events("j-1") if isinstance(e.body, ev.NothingFeasible)]


def test_one_rule_speaks_for_itself_and_is_not_heard_anew_every_minute(stage: Stage) -> None:
    stage.policy = Shut()
    stage.pass_time(MINUTE, times=30)

    assert stage.view.state is JobState.INTERRUPTED
    (once,) = said(stage)
    assert stage.view.waiting_because == once
    assert once.startswith("it is ")
    assert once.endswith(", too late (team.yaml:3)")


def test_of_several_it_is_said_where_they_stand(stage: Stage) -> None:
    stage.policy = Shut(by_zone=True)
    stage.pass_time(MINUTE, times=3)

    assert stage.view.waiting_because == "the policy denies every place that is left: team.yaml:3, team.yaml:7"


def test_where_it_waits_its_turn_that_is_said(stage: Stage) -> None:
    owned = replace(stage.offers[1], zone="ours", capacity_type=CapacityType.OWNED, slots=0)
    stage.offers = [owned, *stage.offers]
    stage.policy = Shut()
    stage.pass_time(timedelta(minutes=1), times=3)

    assert "too_few_machines" in stage.view.waiting_because
