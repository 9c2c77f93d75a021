"""`gpubroker exec`, beside a job that really runs on this machine."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from broker.app.jobs import jobs
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.cli.identity import process_actor
from broker.core.actors import ProcessAccount
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState
from broker.reconciler.loop import Reconciler
from broker.settings import read_settings
from tests.contracts.engine_bench import eventually

pytestmark = pytest.mark.system  # each starts a job, and programs beside it

JOB = """\
name: bert
resources: {cpus: 1}
envs: {COLOUR: green}
secrets: {TOKEN: null}
run: echo here > mine; exec sleep 300
max_duration: 10m
"""


class Running:
    """The job, looked after by a reconciler of this process."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._reconciler: Reconciler = reconciler(broker)

    def until(self, state: AttemptState) -> None:
        def reached() -> bool:
            self._reconciler.tick()
            latest = jobs.find(self.broker, "bert").latest
            return latest is not None and latest.state is state

        eventually(reached, f"the attempt is {state}")


@pytest.fixture
def running(gpubroker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.setenv("TOKEN", "hunter2")
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\necho a shell in $(cat mine)\n")
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    assert gpubroker("submit", "job.yaml", "--yes", "--detach").code == 0
    monkeypatch.delenv("TOKEN")
    monkeypatch.setenv("OF_THE_CALLER", "yes")
    job = Running(Broker(read_settings(), cli.registries(), ProcessAccount(process_actor().identity)))
    job.until(AttemptState.RUNNING)
    yield job
    if not jobs.find(job.broker, "bert").state.final:
        assert gpubroker("cancel", "bert").code == 0
        job.until(AttemptState.CANCELLED)


def test_a_program_has_the_folder_variables_and_cpus_of_the_job_and_its_exit_status_is_told(
    gpubroker: Any, running: Running
) -> None:
    script = "cat mine; echo $COLOUR $TOKEN $GPUBROKER_ATTEMPT ${OF_THE_CALLER-none}; nproc; echo aside >&2; exit 9"
    done = gpubroker("exec", "bert", "--", "sh", "-c", script)
    assert done.code == 9, done
    assert done.out.splitlines() == ["here", "green hunter2 1 none", "1"]
    assert "aside" in done.err
    found = list(jobs.events(running.broker, jobs.find(running.broker, "bert")))
    (entered,) = [(one.attempt, one.body) for one in found if isinstance(one.body, ev.Entered)]
    assert entered[0] == 1
    assert isinstance(entered[1], ev.Entered)
    assert entered[1].program == "sh"
    shown = gpubroker("status", "bert").out
    assert f"{entered[1].by} ran sh inside the job" in shown
    assert "hunter2" not in shown
    assert "COLOUR" not in shown


def test_the_words_signals_and_shell_of_a_program(gpubroker: Any, running: Running) -> None:
    done = gpubroker("exec", "bert", "--", "echo", "--json", "--help")
    assert (done.code, done.out) == (0, "--json --help\n"), "what follows the dashes is for the program"
    assert gpubroker("exec", "bert", "--", "sh", "-c", "kill -9 $$").code == 137, "as shells tell it"
    refused = gpubroker("exec", "bert", "--", "no-such-program")
    assert refused.code == 127
    assert "no-such-program cannot be started" in refused.err
    assert gpubroker("exec", "-it", "bert").out == "a shell in here\n", "the submitter's shell"


def test_a_program_ends_with_the_attempt(gpubroker: Any, running: Running) -> None:
    begun = read_settings().home / "begun"
    os.mkfifo(begun)

    def cancel() -> None:
        begun.read_text()  # returns once the program has written: it runs
        assert jobs.cancel(running.broker, jobs.find(running.broker, "bert"), by=process_actor())
        running.until(AttemptState.CANCELLED)

    other = threading.Thread(target=cancel)
    other.start()
    done = gpubroker("exec", "bert", "--", "sh", "-c", f"echo x > {begun}; exec sleep 300")
    other.join()
    assert done.code == 128 + 15, done


def test_a_job_that_does_not_run_is_refused_and_nothing_is_recorded(gpubroker: Any, job: Path) -> None:
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    refused = gpubroker("exec", "tiny", "--", "true")
    assert refused.code == 2
    assert "does not run; the job is" in refused.err
    assert gpubroker("exec", "tiny", "--node", "1", "--", "true").code == 2
