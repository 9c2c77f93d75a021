"""Two services on one PostgreSQL: the one that leads is killed again and again while jobs run, and nothing is done
twice."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from broker.app.service.duties import STANDBY_SECONDS
from broker.core.events.views import JobView
from broker.core.values.clock import SystemClock
from broker.store import Store, open_store
from tests.program import eventually, run, start

pytestmark = [pytest.mark.system, pytest.mark.timeout(700)]

KILLS = 8
JOBS = 10
# The next one looks every second (`broker.app.service.duties.STANDBY_SECONDS`); how long a busy machine makes that is
# no failure.
PATIENCE = 180.0

JOB = """\
name: short-{number}
resources: {{cpus: 1+}}
run: echo ran-{number} >> {mark}; sleep 1
work: 5s
max_duration: 10m
"""


def service(home: Path, url: str, number: int) -> subprocess.Popen[str]:
    said = (home / f"serve-{number}.log").open("w")
    words = ["serve", "--provider", "owned", "--listen", "off"]
    process = start(*words, home=home, GPUBROKER_STORE=url)
    assert process.stderr is not None
    subprocess.Popen(["cat"], stdin=process.stderr, stdout=said)  # so that it never waits for a reader
    return process


def leads(home: Path, number: int) -> bool:
    return "reconciling jobs" in (home / f"serve-{number}.log").read_text()


def test_killed_while_it_leads(tmp_path: Path, new_postgres: Callable[[], str]) -> None:
    url, home = new_postgres(), tmp_path / "home"
    home.mkdir(mode=0o700)
    mark = tmp_path / "mark"
    mark.touch()
    store = open_store(url, clock=SystemClock())
    services = {0: service(home, url, 0), 1: service(home, url, 1)}
    for number in range(JOBS):
        job = tmp_path / f"job-{number}.yaml"
        job.write_text(JOB.format(number=number, mark=mark))
        done = run("submit", str(job), "--yes", "--detach", home=home, GPUBROKER_STORE=url)
        assert done.returncode == 0, done.stderr
    slowest = 0.0
    for kill in range(KILLS):
        leader = eventually(lambda: next((f"{n}" for n in services if leads(home, n)), ""), "one leads", PATIENCE)
        victim = services.pop(int(leader))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        died = time.monotonic()
        (other,) = services
        eventually(partial(leads, home, other), "the other takes over", PATIENCE)
        slowest = max(slowest, time.monotonic() - died)
        services[2 + kill] = service(home, url, 2 + kill)
    ended = eventually(lambda: closed(store), "every job is closed", 240)
    print(f"{KILLS} leaders killed; the slowest take-over took {slowest:.1f} s ({STANDBY_SECONDS} s once it is up)")
    for number, process in services.items():
        eventually((home / f"serve-{number}.log").read_text, "it is up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    ran = mark.read_text().split()
    assert sorted(ran) == sorted(f"ran-{number}" for number in range(JOBS)), "each command ran, and once"
    for view in ended:
        assert view.state.value == "succeeded"
        assert len(view.attempts) == 1
        assert re.fullmatch(r"short-\d+", view.job.name)
    store.close()


def closed(store: Store) -> list[JobView]:
    with store.reading() as look:
        if look.unclosed():
            return []
        found: list[JobView] = list(look.jobs())
        return found
