"""What runs is judged, too: told to stop with the rule's words, checkpoint first, and paused until somebody acts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from broker.app.jobs.reasons import stop_text, wait_text
from broker.core.errors import InvalidInput, Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Usage, Verdict
from broker.core.values.money import Money
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, running


@dataclass
class LimitPolicy(OpenPolicy):
    """What runs may cost so much; and be idle so long."""

    most: Money = field(default_factory=lambda: Money.usd(1))
    seen: tuple[Usage, ...] = ()

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        self.seen = action.usage
        over = action.kind is ActionKind.CONTINUE and action.spent >= self.most
        source = Source("team.yaml", 7)
        return [Verdict(Answer.DENY if over else Answer.ALLOW, "max_job_cost", "x", f"cost {action.spent}", source)]


def stop_of(stage: Stage) -> ev.StopRequested | None:
    with stage.store.reading() as look:
        found = [event.body for event in look.events("j-1") if isinstance(event.body, ev.StopRequested)]
    return found[0] if found else None


def test_what_runs_up_to_its_limit_is_stopped_with_the_reason_and_its_near_twin_goes_on(stage: Stage) -> None:
    stage.policy = LimitPolicy()
    key = running(stage)
    stage.pass_time(MINUTE, times=59)
    assert stop_of(stage) is None
    assert stage.view.state is JobState.RUNNING
    stage.pass_time(MINUTE, times=2)
    stop = stop_of(stage)
    assert stop is not None
    assert (stop.cause, stop.by) == (Cause.STOPPED_BY_POLICY, "the policy")
    assert stop_text(stop.reason).startswith("cost $1.0")
    assert stop_text(stop.reason).endswith("(team.yaml:7)")
    assert stage.mailbox.leases[key][-1].stop is Cause.STOPPED_BY_POLICY
    assert stage.engine.machines[key].gone_at is None, "it is given its grace to checkpoint"


def test_a_stopped_job_is_paused_its_money_released_and_it_can_be_extended(stage: Stage) -> None:
    stage.policy = LimitPolicy()
    key = running(stage)
    stage.pass_time(MINUTE, times=61)
    stage.mailbox.exits(key, Cause.STOPPED_BY_POLICY, 0)
    stage.pass_time(times=2)
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert "team.yaml:7" in wait_text(stage.view.waiting), "it says which rule"
    assert stage.money()[0] == Money.ZERO
    stage.policy = OpenPolicy()
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.Extended(by="ann", max_cost=Money.usd(50)))], stage.clock.now())
    stage.pass_time(MINUTE)
    assert stage.engine.submitted == [key, "j-1-2"]


def test_the_decision_is_on_record_and_can_be_judged_again(stage: Stage) -> None:
    stage.policy = LimitPolicy()
    running(stage)
    stage.pass_time(MINUTE, times=61)
    (decision,) = stage.decided()
    assert (decision.action, decision.answer) == (ActionKind.CONTINUE, Answer.DENY)
    inputs = inputs_of(decision)
    assert inputs is not None
    assert tuple(LimitPolicy().judge(inputs.action, inputs.facts)) == decision.verdicts


def test_a_policy_that_changes_is_heard_within_seconds(stage: Stage) -> None:
    running(stage)
    stage.policy = OpenPolicy(denied=frozenset({"continue"}), version="stricter")
    stage.pass_time(timedelta(seconds=3))
    assert stop_of(stage) is not None


def test_where_the_policy_cannot_be_read_what_runs_goes_on(stage: Stage) -> None:
    def unreadable() -> OpenPolicy:
        raise InvalidInput("of a newer version")

    key = running(stage)
    stage.enforce._policy = unreadable
    stage.pass_time(MINUTE, times=5)
    assert stage.view.state is JobState.RUNNING
    assert stage.engine.machines[key].gone_at is None


def test_rules_that_need_it_are_told_how_busy_it_is(stage: Stage) -> None:
    stage.policy = unconcerned = LimitPolicy(most=Money.usd(99))
    stage.usage = [Usage(stage.clock.now(), 3.0)]
    running(stage)
    assert unconcerned.seen == (), "nobody needs it"
    stage.policy = told = LimitPolicy(most=Money.usd(99), needs_usage=True, version="2")
    stage.pass_time(MINUTE)
    assert told.seen == tuple(stage.usage)


def test_what_cannot_be_seen_stops_nothing(stage: Stage) -> None:
    def nobody_knows(view: object, attempt: object) -> list[Usage]:
        raise Unreachable("time-out")

    stage.policy = LimitPolicy(most=Money.usd(99), needs_usage=True)
    running(stage)
    stage.enforce._usage = nobody_knows
    stage.pass_time(timedelta(minutes=1), times=3)
    assert stage.view.state is JobState.RUNNING


def test_what_is_being_cancelled_is_left_alone(stage: Stage) -> None:
    running(stage)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.policy = OpenPolicy(denied=frozenset({"continue"}), version="2")
    stage.pass_time(MINUTE)
    assert (stop := stop_of(stage)) is not None
    assert stop.cause is Cause.CANCELLED_BY_USER
