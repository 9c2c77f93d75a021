"""`gpubroker submit` and what comes after it: following, detaching, cancelling, extending, and the exit codes."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cli
from broker.app.jobs import background, jobs
from broker.app.jobs import submit as admission
from broker.app.jobs.preview import preview
from broker.app.wiring import Broker
from broker.cli.jobs import follow as following
from broker.cli.jobs import submit as command
from broker.settings import read_settings
from tests.actors import ANN, EVERYBODYS
from tests.program import eventually
from tests.this_machine import CPUS
from tests.waiting import LONGEST


@pytest.fixture
def reconciled(reconciled_by: Callable[[ModuleType], None]) -> None:
    reconciled_by(following)


def test_submit_follows_to_the_end(gpubroker: Any, job: Path, reconciled: None) -> None:
    done = gpubroker("submit", job, "--yes")
    assert done.code == 0, done
    for told in ("launch on cpu owned at owned/local", "command running", "finished", "succeeded after 1 attempt"):
        assert told in done.out
    assert "cost $0.00" in done.out
    running, printed, finished = (done.out.index(word) for word in ("command running", "hello\n", ": finished"))
    assert running < printed < finished, "what it prints comes between its events"
    assert gpubroker("logs", "tiny", "--node", "0").out == "hello\n"
    assert "its nodes are 0 to 0" in gpubroker("logs", "tiny", "--node", "1").err
    shown = gpubroker("status", "tiny")
    assert "all machines are gone" in shown.out
    assert gpubroker("logs", "tiny").out == "hello\n"
    assert gpubroker("logs", "tiny", "--json").json["lines"] == [{"attempt": 1, "line": "hello", "task": None}]
    assert gpubroker("logs", "tiny", "--tail", "1").out == "hello\n"
    assert "finished" in gpubroker("status", "--attempts", "tiny").out


def test_a_full_disk_and_a_silent_node_are_told_where_a_job_is_shown(
    gpubroker: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    assert gpubroker("status", "tiny", "--json").json["troubles"] == []
    seen = jobs.Progress(3, 10, "running", datetime.now(UTC) - timedelta(seconds=16), None)
    monkeypatch.setattr(jobs, "progress", lambda *_: seen)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=10**9, used=10**9, free=2 * 10**6))
    shown = " ".join(gpubroker("status", "tiny").out.split())
    assert "is full (2 MB free)" in shown
    assert "last heard of 16s ago" in shown


def test_logs_of_a_job_without_output_tell_its_state(gpubroker: Any, job: Path) -> None:
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    done = gpubroker("logs", "tiny")
    assert (done.code, done.out) == (0, "")
    assert ": no output yet; state: " in done.err
    assert gpubroker("cancel", "tiny").code == 0


@pytest.mark.system
def test_events_alone(gpubroker: Any, job: Path, reconciled: None) -> None:
    done = gpubroker("submit", job, "--yes", "--events")
    assert done.code == 0
    assert "command running" in done.out
    assert "hello" not in done.out


def test_the_final_document(gpubroker: Any, job: Path, reconciled: None) -> None:
    done = gpubroker("submit", job, "--yes", "--json")
    assert done.code == 0
    assert "hello\n" in done.err
    document = done.json
    assert document["state"] == "succeeded"
    assert document["closed"] is True
    (attempt,) = document["attempts"]
    assert attempt["state"] == "succeeded"
    assert attempt["cause"] == "completed"
    assert attempt["placement"]["provider"] == "owned"
    assert attempt["up_since"].endswith("Z")
    assert document["cost"] == {"cash": "0.00", "amortised": "0.00", "sandbox": "0.00"}
    assert document["held"] == {"cash": "0.00", "amortised": "0.00", "sandbox": "0.00"}
    assert "command running" in done.err


@pytest.mark.system
def test_a_job_that_fails_exits_7(gpubroker: Any, write: Any, reconciled: None) -> None:
    file = write("bad.yaml", "name: bad\nrun: echo oh no; exit 9\nresources: {cpus: 1}\nmax_duration: 5m\n")
    done = gpubroker("submit", file, "--yes")
    assert done.code == 7
    assert "exit status 9" in done.out
    assert "gpubroker logs bad-" in done.out
    assert gpubroker("status", "bad", "--wait").code == 7
    assert gpubroker("status", "bad").code == 0


def test_without_a_terminal_it_must_be_told_yes(gpubroker: Any, job: Path) -> None:
    done = gpubroker("submit", job)
    assert done.code == 2
    assert "--yes" in done.err
    assert gpubroker("submit", job, "--json").code == 2
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []


def test_detach_returns_at_once_and_says_how_to_come_back(gpubroker: Any, job: Path, started: list[object]) -> None:
    job.write_text(job.read_text().replace("cpus: 1", f"cpus: {CPUS}"))
    done = gpubroker("submit", job, "--yes", "--detach")
    assert done.code == 0
    assert len(started) == 1
    for way in ("status tiny-", "logs tiny-", "cancel tiny-"):
        assert way in done.out
    document = gpubroker("submit", job, "--yes", "--detach", "--json").json
    assert document["state"] == "queued"  # the first job has all of this machine
    assert document["waiting_because"]


def test_any_command_restarts_a_reconciler_that_died(gpubroker: Any, job: Path, started: list[object]) -> None:
    gpubroker("submit", job, "--yes", "--detach")
    before = len(started)
    gpubroker("offers", "-n", "1")
    assert len(started) == before + 1


def test_jobs_planned_together_say_which_are_refused_and_what_would_pass(
    gpubroker: Any, sandbox_job: Path, job: Path, policy: Path
) -> None:
    alone = gpubroker("plan", sandbox_job, "--json").json
    together = gpubroker("plan", job, sandbox_job, "--json")
    assert together.code == alone["exit_code"] == 3
    (refused,) = together.json["refused"]
    assert (refused["name"], refused["exit_code"], refused["error"]["kind"]) == (alone["job"]["name"], 3, "not_allowed")
    assert refused["error"]["alternatives"] == alone["alternatives"] != []
    shown = gpubroker("plan", job, sandbox_job).out
    assert "budget pretend of $3.00" in shown
    assert alone["alternatives"][0]["instruction"] in shown


def test_over_budget_is_refused_and_nothing_is_stored(gpubroker: Any, sandbox_job: Path, policy: Path) -> None:
    done = gpubroker("submit", sandbox_job, "--yes")
    assert done.code == 3
    assert "budget pretend of $3.00" in done.err
    assert "; $3.00 is left" in done.err
    as_json = gpubroker("submit", sandbox_job, "--yes", "--json")
    assert as_json.code == 3
    assert as_json.json["error"]["kind"] == "not_allowed"
    (denial,) = [v for v in as_json.json["plan"]["verdict"]["verdicts"] if v["answer"] == "deny"]
    assert {"budget", "asked", "left"} <= set(denial["figures"])
    alternatives = as_json.json["error"]["alternatives"]
    assert alternatives == as_json.json["plan"]["alternatives"]
    lower = alternatives[0]
    assert set(lower) == {"instruction", "max_cost", "max_duration", "not_before", "needs_approval"}
    assert lower["instruction"] == f"`max_cost: ${lower['max_cost']}` in the job file"
    assert lower["instruction"] in as_json.json["error"]["hint"]
    assert lower["instruction"] in done.out
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []
    assert gpubroker("budget", "pretend", "--json").json["held"] == "0.00"
    replayed = gpubroker("policy", "apply", "--dry-run", policy, "--json").json["past"]["decisions"]
    assert (replayed["before"]["denied"], replayed["same"]) == (2, 2), "both refusals are on record"


def test_nothing_feasible_is_exit_4(gpubroker: Any, write: Any) -> None:
    file = write("job.yaml", "run: echo\nresources: {accelerators: 'MI300X:8'}\n")
    done = gpubroker("submit", file, "--yes")
    assert done.code == 4
    assert "no engine here can run" in done.out
    as_json = gpubroker("submit", file, "--yes", "--json")
    assert as_json.code == 4
    assert as_json.json["error"]["kind"] == "no_feasible_capacity"
    assert as_json.json["plan"]["reasons"]


def test_money_is_held_cancelled_and_released(gpubroker: Any, write: Any, policy: Path, home: Path) -> None:
    text = "name: trial\nrun: sleep 60\nresources: {accelerators: 'L4:1'}\nconstraints: {providers: [sandbox]}\n"
    file = write("job.yaml", text + "max_duration: 1h\nmax_cost: $2\n")
    document = gpubroker("submit", file, "--yes", "--detach", "--json").json
    held = float(document["held"]["sandbox"])
    assert 0 < held <= 2
    assert float(gpubroker("budget", "pretend", "--json").json["held"]) == held
    assert "is being stopped" in gpubroker("cancel", "trial").out
    assert gpubroker("reconcile", "--json").json == {"reconciled": True, "log": str(home / "reconciler.log")}
    waited = gpubroker("status", "trial", "--wait", "--json")
    assert waited.code == 7
    assert waited.json["state"] == "cancelled"
    assert waited.json["held"]["sandbox"] == "0.00"
    assert waited.json["events"][0]["kind"] == "submitted"
    assert "already" in gpubroker("cancel", "trial").out


def test_the_default_time_limit_is_stated_unless_the_job_or_the_policy_sets_one(
    gpubroker: Any, job: Path, write: Any, started: list[object]
) -> None:
    job.write_text(job.read_text().replace("max_duration: 10m\n", ""))
    said = "No time limit given: it is stopped after 24h 00m"
    assert said in gpubroker("submit", job, "--yes", "--detach").err
    assert said not in gpubroker("submit", job, "--yes", "--detach", "--max-duration", "1h").err
    file = write("policy.yaml", "version: 1\npolicy: p\ndefaults: {max_duration: 3h}\n")
    assert gpubroker("policy", "apply", file, "--yes").code == 0
    assert said not in gpubroker("submit", job, "--yes", "--detach").err


def test_extending(gpubroker: Any, job: Path) -> None:
    gpubroker("submit", job, "--yes", "--detach")
    done = gpubroker("jobs", "extend", "tiny", "--max-duration", "20m", "--json")
    assert done.code == 0
    assert done.json["max_duration"] == 1200
    assert gpubroker("jobs", "extend", "tiny", "--max-duration", "5m").code == 2
    assert gpubroker("jobs", "extend", "tiny", "--max-cost", "a lot").code == 2
    assert gpubroker("jobs", "extend", "tiny").code == 2


def test_lists(gpubroker: Any, job: Path) -> None:
    gpubroker("submit", job, "--yes", "--detach")
    assert "tiny-" in gpubroker("jobs", "list", "-w", "state=launching", "--mine").out
    assert gpubroker("jobs", "list", "-w", "team=nlp*,user=*").out == "no matching jobs\n"
    (listed,) = gpubroker("jobs", "list", "--json").json["jobs"]
    assert listed["name"] == "tiny"
    assert "no attempt 4" in gpubroker("logs", "tiny", "--attempt", "4").err


def test_ctrl_c_detaches(gpubroker: Any, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "_follow", interrupted)
    done = gpubroker("submit", job, "--yes")
    assert done.code == 130
    assert "Detached" in done.err
    assert "gpubroker status tiny-" in done.err
    assert command.submit is not None
    assert gpubroker("jobs", "list", "--json").json["jobs"][0]["state"] == "launching"


def test_ctrl_c_while_the_money_is_being_held_is_heeded_once_the_job_is_told_of(
    gpubroker: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed_meanwhile(*arguments: Any, **more: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return admit(*arguments, **more)

    admit = admission.submit
    monkeypatch.setattr(admission, "submit", pressed_meanwhile)
    done = gpubroker("submit", job, "--yes")
    assert done.code == 130
    assert done.err.index("Submitted as tiny-") < done.err.index("Detached")
    assert "gpubroker cancel tiny-" in done.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert gpubroker("jobs", "list", "--json").json["jobs"][0]["state"] == "launching"


def test_ctrl_c_when_it_has_become_dearer_asks_nobody_again(
    gpubroker: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dearer(broker: Broker, wanted: Any, **_: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(admission, "submit", admit)
        raise admission.DearerNow(preview(broker, wanted, by=ANN))

    admit = admission.submit
    monkeypatch.setattr(admission, "submit", dearer)
    done = gpubroker("submit", job, "--yes")
    assert done.code == 130
    assert "Submitted" not in done.err


def test_a_second_ctrl_c_interrupts_what_hangs(gpubroker: Any, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not interrupted")

    monkeypatch.setattr(admission, "submit", hangs)
    done = gpubroker("submit", job, "--yes")
    assert done.code == 130
    assert "Submitted" not in done.err


@pytest.mark.system
def test_the_real_thing_in_processes_of_its_own(home: Path, write: Any) -> None:
    """On a terminal: asked, followed with a live line, detached with Ctrl-C; the background process ends the job."""
    file = write("job.yaml", "name: real\nrun: sleep 6; echo done\nresources: {cpus: 1}\nmax_duration: 5m\n")
    keyboard, screen = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    arguments = [sys.executable, "-P", "-m", "cli", "submit", str(file)]
    process = subprocess.Popen(
        arguments, stdin=screen, stdout=screen, stderr=screen, env=environment, start_new_session=True
    )
    os.close(screen)
    seen = read_until(keyboard, "Submit this job?")
    os.write(keyboard, b"y\n")
    seen += read_until(keyboard, "Ctrl-C detaches")
    process.send_signal(signal.SIGINT)
    seen += read_until(keyboard, "cancel real-")
    assert process.wait(LONGEST) == 130
    os.close(keyboard)
    assert "owned/local" in seen
    assert "Detached" in seen
    assert "\x1b[3" in seen  # in colour
    waited = subprocess.run(
        [*arguments[:4], "status", "real", "--wait", "--json"], capture_output=True, text=True, check=False
    )
    assert waited.returncode == 0, waited.stderr
    assert json.loads(waited.stdout)["state"] == "succeeded"
    logs = subprocess.run([*arguments[:4], "logs", "real"], capture_output=True, text=True, check=True)
    assert logs.stdout == "done\n"
    wait_for_the_background(home)


def read_until(descriptor: int, text: str) -> str:
    seen, deadline = "", time.monotonic() + LONGEST
    while text not in seen:
        assert time.monotonic() < deadline, seen
        try:
            seen += os.read(descriptor, 4096).decode(errors="replace")
        except OSError as error:  # nobody has the terminal open any more
            raise AssertionError(f"it ended without {text!r}: {seen!r}") from error
    return seen


def wait_for_the_background(home: Path) -> None:
    """The reconciler goes away by itself when nothing is left to do."""
    broker = Broker(read_settings(), cli.registries(), EVERYBODYS)
    eventually(lambda: not background.is_running(broker), "the reconciler has gone away")
    view = jobs.find(broker, "real")
    assert view.closed
    broker.store.close()
