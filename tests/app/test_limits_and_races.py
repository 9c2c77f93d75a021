"""What must not slip through between plan, agreement and launch, and who may change a job."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.billing.report import spend
from broker.app.jobs import background, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.preview import preview
from broker.app.jobs.sealed_secrets import KEY_FILE, JobSecrets
from broker.app.jobs.submit import DearerNow, submit
from broker.app.market.market import market_for
from broker.app.service import passes
from broker.app.service.duties import ReconcileDuty
from broker.app.service.health import Pulses
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.core.actors import ProcessAccount
from broker.core.errors import InvalidInput, LoginMissing, NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import OwnerMustStart, SecretsMissing
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.values.money import Money
from broker.reconciler.controllers.placement import PlacementController
from tests.actors import ANN, EVERYBODYS, ROOT, mid_month, person, under, with_clock
from tests.app.jobs.approving import held
from tests.controllers import Asking
from tests.this_machine import CPUS

SANDBOX = "constraints: {providers: [sandbox]}\n"


def job(broker: Broker, extra: str = "", name: str = "count", cpus: int = 1) -> Job:
    text = f"name: {name}\nrun: 'true'\nresources: {{cpus: {cpus}}}\nmax_duration: 10h\n{extra}"
    return parse_job(text, file="job.yaml", now=broker.clock.now())


def grant(broker: Broker, amount: str = "$100") -> None:
    text = f"version: 1\npolicy: t\nbudgets: [{{name: pretend, amount: {amount}, period: month, counts: [sandbox]}}]\n"
    broker.store.activate_policy({"test.yaml": text}, by="test")


def lose(broker: Broker, view: JobView) -> JobView:
    with broker.store.writing() as tx:
        return tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.MACHINE_LOST))], broker.clock.now())


def placing(broker: Broker, **more: Any) -> Asking:
    place = PlacementController(broker.store, lambda j: market_for(broker, j), broker.policy, **more)
    return Asking(place, broker.clock.now)


def test_a_max_cost_that_does_not_pay_for_a_start_is_the_files_mistake(broker: Broker) -> None:
    grant(broker)
    assert preview(broker, job(broker, SANDBOX + "max_cost: $0.000001\n"), by=ANN).exit_code == 2
    with pytest.raises(InvalidInput, match=r"max_cost: \$0\.000001 does not pay for a start .* expected at least \$"):
        submit(broker, job(broker, SANDBOX + "max_cost: $0.000001\n"), by=ANN)
    with broker.store.reading() as look:
        assert look.jobs() == []


def test_machines_taken_while_a_lost_job_is_planned_are_not_given_twice(
    broker: Broker, new_broker: Callable[[], Broker]
) -> None:
    """Each job wants all of this machine."""
    first = lose(broker, submit(broker, job(broker, name="a", cpus=CPUS), by=ANN))
    other, place, taken = new_broker(), placing(broker), list[JobView]()
    real = place.controller.plans  # type: ignore[attr-defined]  # it is a placing

    def meanwhile(*args: Any) -> Any:
        plan = real(*args)
        if not taken:
            taken.append(submit(other, job(other, name="b", cpus=CPUS), by=ANN))
        return plan

    place.controller.plans = meanwhile  # type: ignore[attr-defined] # the moment between plan and transaction
    assert place(first), "to be looked at anew"
    with broker.store.reading() as look:
        assert [attempt.job_id for attempt in look.live_attempts()] == [taken[0].id]


def test_a_policy_activated_after_the_plan_judges_all_the_same(
    broker: Broker, new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(broker)
    other, real = new_broker(), broker.store.writing

    @contextmanager
    def writing() -> Iterator[Any]:
        grant(other, "$0.01")
        with real() as tx:
            yield tx

    monkeypatch.setattr(broker.store, "writing", writing)
    with pytest.raises(NotAllowed, match=r"budget pretend of \$0\.01"):
        submit(broker, job(broker, SANDBOX), by=ANN)


def test_money_that_another_job_takes_after_the_plan_leaves_smaller_limits(
    broker: Broker, new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of $5, each of two jobs asks for $3, and both plans are made while nothing is held."""
    clock = mid_month()
    broker, other = with_clock(broker, clock), with_clock(new_broker(), clock)
    grant(broker, "$5")
    real = broker.store.writing
    three = SANDBOX + "max_cost: $3\n"

    @contextmanager
    def writing() -> Iterator[Any]:
        monkeypatch.setattr(broker.store, "writing", real)
        assert submit(other, job(other, three, "first"), by=ANN).attempts
        with real() as tx:
            yield tx

    monkeypatch.setattr(broker.store, "writing", writing)
    with pytest.raises(NotAllowed, match=r"budget pretend of \$5") as found:
        submit(broker, job(broker, three, "second"), by=ANN)
    instructions = [one.instruction for one in found.value.alternatives]
    assert "`max_cost: $2.00` in the job file" in instructions
    assert "`max_cost: $2.00` in the job file" in found.value.hint
    again = preview(broker, job(broker, three, "second"), by=ANN)
    assert instructions == [one.instruction for one in again.alternatives or ()]


def test_what_was_agreed_to_is_not_launched_dearer(broker: Broker) -> None:
    grant(broker)
    seen = preview(broker, job(broker, SANDBOX), by=ANN)
    assert seen.admission is not None
    less = replace(seen.admission, money={kind: amount - Money(1) for kind, amount in seen.admission.money.items()})
    with pytest.raises(DearerNow) as found:
        submit(broker, seen.job, agreed_preview=replace(seen, admission=less), by=ANN)
    assert submit(broker, seen.job, agreed_preview=found.value.preview, by=ANN).attempts


def test_only_who_submitted_a_job_or_root_changes_it(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    view = submit(broker, job(broker), by=ANN)
    with pytest.raises(NotAllowed, match=f"{view.user}'s job, and you are mallory"):
        jobs.cancel(broker, view, by=person("mallory"))
    with pytest.raises(NotAllowed, match="mallory"):
        extend(broker, view, JobLimits(max_duration=timedelta(hours=99)), by=person("mallory"))
    assert jobs.cancel(broker, view, by=ROOT).cancel_requested


def test_a_job_waits_for_secrets_that_this_process_lacks(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "x")
    view = submit(broker, job(broker, "secrets: [HF_TOKEN]\n"), by=ANN)
    secrets = JobSecrets(broker)
    monkeypatch.delenv("HF_TOKEN")
    assert secrets.of(view, EVERYBODYS) == {"HF_TOKEN": "x"}, "they were sealed at submission"
    (broker.settings.home / KEY_FILE).unlink()  # as in another home
    with pytest.raises(LoginMissing, match="HF_TOKEN"):
        secrets.of(view, EVERYBODYS)
    view = lose(broker, view)
    place = placing(broker, missing_secrets=secrets.missing)
    assert not place(view), "a note alone is no reason to look again at once"
    waiting = jobs.find(broker, view.id)
    assert waiting.state is JobState.INTERRUPTED
    assert waiting.waiting == SecretsMissing(names=("HF_TOKEN",))
    assert not place(waiting)
    assert jobs.find(broker, view.id).seq == waiting.seq, "said once"
    assert background._job_startable_here(broker) is None
    monkeypatch.setenv("HF_TOKEN", "x")
    found = background._job_startable_here(broker)
    assert found is not None
    assert found.id == view.id


def test_a_reconciler_gives_way_to_one_with_the_secrets(
    broker: Broker, new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "x")
    started: list[dict[str, str]] = []
    monkeypatch.setattr("broker.app.jobs.background.subprocess.Popen", lambda *args, env, **more: started.append(env))
    view = submit(broker, job(broker, "secrets: [HF_TOKEN]\n"), by=ANN)
    submit(broker, job(broker), None, by=ANN)
    monkeypatch.setattr("broker.reconciler.loop.Reconciler.tick", lambda self: Busy())
    other = new_broker()
    ticks = iter(range(3))

    class Busy:
        @property
        def idle(self) -> bool:
            if next(ticks) == 1:
                assert not background.ensure(other)
                assert background.ensure(other, for_secrets_of=view)
            return False

    broker.settings.reconcile_every = 0.001
    assert passes.run(broker), "it ended although work is left"
    assert started[0]["GPUBROKER_RECONCILER_TURN"] == broker.store.setting("reconciler_turn")


def test_nobody_runs_the_job_of_somebody_else_as_themselves(broker: Broker) -> None:
    """Whoever approves a job, or looks at it, may be the one whose process looks after the store."""
    view, carls = submit(broker, job(broker), by=ANN), under(ProcessAccount("carl"), broker)
    for _ in range(3):
        reconciler(carls).tick()
    waiting = jobs.find(broker, view.id)
    assert waiting.state is JobState.LAUNCHING
    assert waiting.waiting == OwnerMustStart(owner="ann", process_user="carl")
    anns = under(ProcessAccount("ann"), broker)
    assert background._job_startable_here(anns) == waiting, "ann's own process takes over"
    reconciler(anns).tick()
    latest = jobs.find(broker, view.id).latest
    assert latest is not None
    assert latest.handle


def test_a_service_runs_the_jobs_of_all(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    view, stop = submit(broker, job(broker), by=ANN), threading.Event()

    def look_once(service: Broker, *_: object) -> list[Any]:
        reconciler(service).tick()
        stop.set()
        return []

    monkeypatch.setattr("broker.app.service.duties.reconcile_passes", look_once)
    ReconcileDuty(under(ProcessAccount("carl"), broker), health=Pulses(), say=print).run(stop)
    latest = jobs.find(broker, view.id).latest
    assert latest is not None
    assert latest.handle


def test_reports_clip_machine_time_and_count_every_hold(broker: Broker) -> None:
    grant(broker)
    view, now = submit(broker, job(broker, SANDBOX), by=ANN), broker.clock.now()
    with broker.store.writing() as tx:
        up = ev.MachineUp(since=now - timedelta(hours=100))
        tx.append(view.id, [(1, ev.Launched(handle="x")), (1, up)], now)
    (row,) = spend(broker, "team", since=now - timedelta(hours=1), until=now, sandbox=True)
    assert row.machine_hours == pytest.approx(1)
    (row,) = spend(broker, "provider", sandbox=True)
    assert (row.held, row.jobs, row.attempts) == (held(broker, view.id), 1, 1)


def test_the_plan_says_that_sensitive_data_is_only_recorded(broker: Broker) -> None:
    notes = preview(broker, job(broker, "data: {sensitive: true}\n"), by=ANN).plan.notes
    assert any("data.sensitive" in note for note in notes)
