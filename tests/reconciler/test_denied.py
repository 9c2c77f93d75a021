"""Why a job waits that the policy lets go nowhere: in the rule's words, said once, and not where it waits its turn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from broker.app.jobs.reasons import wait_text
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import NothingFits, PolicyDenies, WaitReason
from broker.core.job.reasons import Reason
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.core.values.clock import ManualClock
from broker.reconciler.controllers.placement import PlacementAdvice, PlacementController, Plans
from broker.store import Store
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, running


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


def said(stage: Stage) -> list[WaitReason]:
    with stage.store.reading() as look:
        return [e.body.reason for e in look.events("j-1") if isinstance(e.body, ev.NothingFeasible)]


def test_one_rule_speaks_for_itself_and_is_not_heard_anew_every_minute(stage: Stage) -> None:
    stage.policy = Shut()
    stage.pass_time(MINUTE, times=30)

    assert stage.view.state is JobState.INTERRUPTED
    (once,) = said(stage)
    assert stage.view.waiting == once
    assert isinstance(once, PolicyDenies)
    assert [(one.name, one.source) for one in once.objections] == [("hours", "team.yaml:3")]
    assert once.objections[0].message.endswith(", too late")


def test_of_several_it_is_said_where_they_stand(stage: Stage) -> None:
    stage.policy = Shut(by_zone=True)
    stage.pass_time(MINUTE, times=3)

    assert wait_text(stage.view.waiting) == "the policy denies every remaining placement: team.yaml:3, team.yaml:7"


def test_where_it_waits_its_turn_that_is_said(stage: Stage) -> None:
    owned = replace(stage.offers[1], zone="ours", capacity_type=CapacityType.OWNED, slots=0)
    stage.offers = [owned, *stage.offers]
    stage.policy = Shut()
    stage.pass_time(timedelta(minutes=1), times=3)

    assert isinstance(stage.view.waiting, NothingFits)
    assert Reason.TOO_FEW_MACHINES in stage.view.waiting.counts


@dataclass
class DenyingPolicy(OpenPolicy):
    """Every place would do, but the whole is refused; says since when."""

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        answer = Answer.DENY if action.hold is not None and action.job_id else Answer.ALLOW
        return [Verdict(answer, "hours", "test", f"it is {facts.now:%H:%M}", Source("team.yaml", 3), "hours")]


def test_what_the_gate_refuses_as_a_whole_is_said_once_too(stage: Stage) -> None:
    stage.policy = DenyingPolicy()
    stage.pass_time(MINUTE, times=30)

    assert len(said(stage)) == 1


def patient(stage: Stage, words: Sequence[str], pools: Sequence[str] = ("",)) -> list[datetime]:
    """A strategy that waits, in other words and for other pools each time it is asked; when it was."""
    asked: list[datetime] = []

    def wait(view: JobView, plans: Plans, now: datetime) -> PlacementAdvice:
        asked.append(now)
        return PlacementAdvice((), words[len(asked) % len(words)], pools[len(asked) % len(pools)])

    place = PlacementController(stage.store, lambda job: stage._market(), lambda: stage.policy, advise=wait)
    stage.begin(place, retry_place=timedelta(seconds=15))
    return asked


def test_a_wait_whose_figures_go_on_is_said_once_and_thought_over_once_in_a_while(stage: Stage) -> None:
    asked = patient(stage, [f"back in {n / 7:.2f} h, at 2026-03-0{n} 12:0{n}: that saves $1,00{n}.5" for n in range(9)])
    stage.pass_time(timedelta(seconds=1), times=10)
    assert len(asked) == len(said(stage)) == 1
    stage.pass_time(timedelta(seconds=15), times=20)
    assert len(asked) == 21
    assert len(said(stage)) == 1


def test_another_place_is_another_word(stage: Stage) -> None:
    asked = patient(stage, ["spot is expected back"], ["us-1/p5.8xlarge", "us-2/p5.8xlarge", "us-2/p5.48xlarge"])
    stage.pass_time(timedelta(seconds=15), times=7)
    assert len(said(stage)) == len(asked) == 7
