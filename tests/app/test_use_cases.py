"""The use cases on a real store, without running anything: admission, queueing, extension, reports, background."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.billing.report import ledger_faults
from broker.app.jobs import background, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.preview import NoFeasibleCapacity, preview
from broker.app.jobs.sealed_secrets import JobSecrets
from broker.app.jobs.submit import new_job_id, submit
from broker.app.policy import policies
from broker.app.wiring import Broker
from broker.core.errors import Conflict, InvalidInput, LoginMissing, NotAllowed, UnknownName
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import MoneyEnded, NothingFits
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.job.reasons import Reason
from broker.core.values.money import Money
from broker.settings import environment_of
from tests.actors import ANN, EVERYBODYS, mid_month, with_clock
from tests.app.jobs.approving import held
from tests.this_machine import CPUS

SANDBOX = "constraints: {providers: [sandbox]}\n"
POLICY = "version: 1\npolicy: test\nbudgets: [{name: pretend, amount: AMOUNT, period: month, counts: [sandbox]}]\n"


def job(broker: Broker, extra: str = "", name: str = "count") -> Job:
    text = f"name: {name}\nrun: 'true'\nresources: {{cpus: {CPUS}}}\nmax_duration: 10h\n{extra}"
    return parse_job(text, file="job.yaml", now=broker.clock.now())


def grant(broker: Broker, amount: str = "$100") -> None:
    broker.store.activate_policy({"test.yaml": POLICY.replace("AMOUNT", amount)}, by="test")


def end(broker: Broker, job_id: str, cause: Cause) -> None:
    with broker.store.writing() as tx:
        tx.append(job_id, [(1, ev.AttemptEnded(cause=cause))], broker.clock.now())


def test_owned_capacity_works_without_any_policy_and_holds_nothing(broker: Broker) -> None:
    view = submit(broker, job(broker), by=ANN)
    assert view.state is JobState.LAUNCHING
    assert view.attempts[0].placement.offer.provider == "owned"
    with broker.store.reading() as look:
        assert look.entries() == []
        assert [d.job_id for d in look.decisions()] == [view.id]


def test_a_denied_job_does_not_exist_but_the_decision_is_kept(broker: Broker) -> None:
    grant(broker, "$0.01")
    with pytest.raises(NotAllowed, match=r"budget pretend of \$0\.01 .* requested.*; \$0\.01 is left"):
        submit(broker, job(broker, SANDBOX), by=ANN)
    with broker.store.reading() as look:
        assert look.jobs() == []
        assert look.entries() == []
        assert [d.answer.value for d in look.decisions()] == ["deny"]


def test_what_nothing_can_serve_is_the_markets_fault_and_what_policy_forbids_the_policys(broker: Broker) -> None:
    with pytest.raises(NoFeasibleCapacity) as found:
        submit(broker, job(broker, "deadline: 1h\nwork: 9h\n"), by=ANN)
    assert "misses_deadline" in {str(reason) for reason in found.value.preview.counts}
    cash = "constraints: {providers: [aws]}\n"
    assert preview(broker, job(broker, cash), by=ANN).exit_code in (3, 4)


def test_a_second_job_waits_for_our_own_machine_instead_of_being_refused(broker: Broker) -> None:
    first, second = submit(broker, job(broker), by=ANN), submit(broker, job(broker), by=ANN)
    assert first.attempts
    assert not second.attempts
    assert second.state is JobState.QUEUED
    assert second.waiting == NothingFits(counts={Reason.TOO_FEW_MACHINES: 1})


def test_two_who_submit_at_once_do_not_get_the_same_machine(new_broker: Callable[[], Broker]) -> None:
    views: list[int] = []
    ready = threading.Barrier(4)

    def one() -> None:
        mine = new_broker()
        _ = mine.store
        ready.wait()
        views.append(len(submit(mine, job(mine), by=ANN).attempts))

    new_broker().store.close()
    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(views) == [0, 0, 0, 1]


def test_a_budget_is_never_overdrawn_by_submissions_at_once(new_broker: Callable[[], Broker]) -> None:
    grant(new_broker(), "$3.20")
    admitted: list[str] = []
    ready, clock = threading.Barrier(6), mid_month()

    def one() -> None:
        mine = with_clock(new_broker(), clock)
        ready.wait()
        with suppress(NotAllowed):
            admitted.append(submit(mine, job(mine, SANDBOX + "max_cost: $1\n"), by=ANN).id)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    looker = new_broker()
    assert len(admitted) == 3
    assert sum((held(looker, job_id) for job_id in admitted), Money.ZERO) == Money.usd("3")


def test_extending_a_running_job_takes_the_money_at_once_or_not_at_all(broker: Broker) -> None:
    broker = with_clock(broker, mid_month())
    grant(broker, "$1.50")
    view = submit(broker, job(broker, SANDBOX + "max_cost: $1\n"), by=ANN)
    with pytest.raises(InvalidInput, match="more than that"):
        extend(broker, view, JobLimits(max_cost=Money.usd("0.5")), by=ANN)
    with pytest.raises(NotAllowed, match="budget pretend"):
        extend(broker, view, JobLimits(max_cost=Money.usd("2"), max_duration=timedelta(hours=30)), by=ANN)
    assert held(broker, view.id) == Money.usd("1")
    after = extend(broker, view, JobLimits(max_cost=Money.usd("1.25"), max_duration=timedelta(hours=30)), by=ANN)
    assert after.max_cost == Money.usd("1.25")
    assert held(broker, view.id) == Money.usd("1.25")
    assert ledger_faults(broker) == []


def test_an_ended_job_is_not_extended_and_cancelling_twice_is_once(broker: Broker) -> None:
    view = submit(broker, job(broker), by=ANN)
    jobs.cancel(broker, view, by=ANN)
    assert jobs.cancel(broker, view, by=ANN).seq == 3
    with pytest.raises(Conflict, match="is being cancelled"):
        extend(broker, view, JobLimits(max_duration=timedelta(hours=99)), by=ANN)


def test_jobs_are_found_by_id_by_a_beginning_and_by_name(broker: Broker) -> None:
    view = submit(broker, job(broker, name="llama"), by=ANN)
    for reference in (view.id, view.id[:-2], "llama"):
        assert jobs.find(broker, reference).id == view.id
    with pytest.raises(UnknownName, match="did you mean"):
        jobs.find(broker, view.id.replace("llama", "lama"))


def test_a_name_means_the_open_job_and_of_several_none(broker: Broker) -> None:
    older, newer = (submit(broker, job(broker, name="loc"), by=ANN) for _ in range(2))
    with pytest.raises(InvalidInput) as refused:
        jobs.find(broker, "loc")
    assert str(refused.value) == f"2 open jobs are named 'loc': {newer.id}, {older.id}; give an id"
    assert jobs.find(broker, newer.id).id == newer.id
    over = ev.JobEnded(state=JobState.CANCELLED)
    with broker.store.writing() as tx:
        tx.append(newer.id, [(None, over)], broker.clock.now())  # it waits for the machine of the older one
    assert jobs.find(broker, "loc").id == older.id, "the newest has ended, and the older one still costs"
    end(broker, older.id, Cause.PAID_UNTIL)
    with broker.store.writing() as tx:
        tx.append(older.id, [(None, over)], broker.clock.now())
    assert jobs.find(broker, "loc").id == newer.id


def test_an_empty_store_adopts_policies_once_and_never_again(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(POLICY.replace("AMOUNT", "$5"))
    broker.settings.policy = str(file)
    adopted = policies.adopt_configured(broker, by=ANN)
    assert adopted is not None
    assert adopted.number == 1
    file.write_text(POLICY.replace("AMOUNT", "$500"))
    assert policies.adopt_configured(broker, by=ANN) is None


def test_a_policy_that_does_not_load_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    grant(broker)
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\npolicy: x\nbugdets: []\n")
    with pytest.raises(InvalidInput) as found:
        policies.apply(broker, [bad], by=ANN)
    assert ["did you mean 'budgets'" in str(problem) for problem in found.value.problems] == [True]
    active = broker.store.active_policy()
    assert active is not None
    assert active.number == 1


def test_a_background_process_gets_the_same_settings(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker.settings import read_settings

    broker.settings.providers = {"sandbox": {"seed": 3}}
    for name, value in environment_of(broker.settings).items():
        monkeypatch.setenv(name, value)
    again = read_settings()
    assert environment_of(again) == environment_of(broker.settings)
    assert again.providers == {"sandbox": {"seed": 3}}


def test_work_is_left_while_time_alone_could_move_a_job(broker: Broker) -> None:
    assert not background.has_work_left(broker)
    view = submit(broker, job(broker), by=ANN)
    assert background.has_work_left(broker)
    end(broker, view.id, Cause.PAID_UNTIL)
    with broker.store.writing() as tx:
        tx.append(view.id, [(None, ev.Paused(reason=MoneyEnded(evidence="money")))], broker.clock.now())
    assert not background.has_work_left(broker), "it waits for a person"
    jobs.cancel(broker, view, by=ANN)
    assert background.has_work_left(broker)


def test_job_ids_are_names_every_engine_accepts() -> None:
    for name in ("Llama 7B (QLoRA)!", "7b", "---", "x" * 200, "ümläut"):
        made = new_job_id(name)
        assert len(made) <= 34
        assert made[0].isalpha()
        assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in made)
        assert new_job_id(name) != made


def test_secrets_are_never_handed_to_another_users_job(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.setenv("TOKEN", "hush")
    view = submit(broker, job(broker, "secrets: [TOKEN]\n"), by=ANN)
    secrets = JobSecrets(broker)
    assert secrets.of(view, EVERYBODYS) == {"TOKEN": "hush"}
    unsealed = replace(view, job=view.job.model_copy(update={"seal": None}))
    assert secrets.of(unsealed, EVERYBODYS) == {"TOKEN": "hush"}
    with pytest.raises(LoginMissing) as found:
        secrets.of(replace(unsealed, user="somebody-else"), EVERYBODYS)
    assert "hush" not in str(found.value)
