"""Scripts that once broke the promise. Each is as short as possible, and runs in a fraction of a second."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.money.moves import Move
from tests.money.play import Stage, replay
from tests.money.stores import sqlite_store


def submit(**said: Any) -> Move:
    return "submit", said


def wait(span: str, looks: int = 1) -> Move:
    return "wait", {"span": span, "looks": looks}


def policy(**said: Any) -> Move:
    return "policy", said


SCRIPTS = {
    "a job that may run for ten years burns its whole hold within days": (
        policy(amount="$10"),
        submit(capacity="on_demand", max_cost="$95", max_duration="3650d"),
        wait("10d", 3),
    ),
    "a longer limit moves what is held into later periods, and lets another job in": (
        policy(period="month"),
        submit(capacity="on_demand", max_cost="$50", max_duration="10h"),
        wait("1m"),
        ("extend", {"max_cost": "$60", "max_duration": "90d"}),
        submit(capacity="on_demand", max_cost="$95", max_duration="3d"),
        wait("3d", 3),
    ),
    "data that a job reads from elsewhere is billed at each start": (
        policy(),
        submit(capacity="on_demand", data="50GB"),
        wait("1h", 3),
    ),
    "data that a job reads from elsewhere counts against its max_cost": (
        policy(),
        submit(machine="H100:8", max_cost="$10", data="50GB"),
        wait("400d", 6),
    ),
    "a hold that does not even pay for the data": (
        policy(places="deny aws"),
        submit(max_cost="$95", work="2h", data="2TB"),
        wait("2s"),
    ),
    "a machine is billed while it starts": (
        policy(),
        ("fate", {"boots": 7200.0}),
        submit(capacity="on_demand", max_cost="$3"),
        wait("1h", 6),
        wait("1h", 6),
        wait("1h", 6),
    ),
    "a clock that is set back for a look": (
        policy(),
        submit(),
        ("wrong_clock", {"by": "-5h", "looks": 2}),
    ),
    "a clock that is ahead for a look": (
        policy(),
        wait("end-5s"),
        submit(machine="H100:8"),
        ("wrong_clock", {"by": "400d", "looks": 1}),
        wait("2s"),
        submit(),
        wait("end-5h", 0),
        wait("1d"),
    ),
    "a freeze that begins before a launch that was delayed": (
        policy(freeze="tomorrow"),
        submit(),
        wait("end-5h"),
    ),
    "a freeze that begins seconds after a submission, before its launch": (
        policy(),
        submit(),
        policy(freeze="tomorrow"),
        wait("end-5s", 6),
        submit(),
        wait("end-5s"),
    ),
    "a price that rises at the moment of a look": (
        policy(),
        submit(max_cost="$3"),
        wait("2s", 3),
        ("price", {}),
        wait("400d"),
    ),
    "a price that rises tenfold at the moment of a look": (
        policy(),
        submit(machine="H100:8"),
        wait("2s", 3),
        ("price", {"pool": "gcp-8-spot", "times": "10"}),
        wait("1d"),
    ),
    "a price that falls between the submission and a launch that was delayed": (
        policy(),
        submit(),
        ("price", {"times": "0.5"}),
        wait("1m"),
        wait("2s"),
    ),
    "a provider that is denied between the submission and the launch": (
        policy(),
        submit(),
        policy(places="deny aws"),
        wait("2s"),
    ),
    "a dearer machine at the provider that was approved, within the amount that was": (
        policy(places="ask aws"),
        wait("2s"),
        ("fate", {"comes": "broken"}),
        submit(max_cost="$3", data="50GB"),
        ("answer", {}),
        wait("2s"),
        wait("1m"),
    ),
    "a price that nobody was told, billed by the hour, and the last hour reaches over midnight": (
        policy(),
        submit(),
        wait("end-5h"),
        ("extend", {"max_duration": "20h"}),
        ("price", {"pool": "vast", "times": "40", "told": False}),
        submit(capacity="on_demand", max_cost="$95", max_duration="", unattended="2h"),
        wait("end-30m", 6),
    ),
    "budgets withdrawn between the submission and the launch": (
        policy(),
        submit(),
        policy(withdrawn=True),
        wait("2s"),
    ),
    "a machine taken back in a free hour after it was told to stop": (
        policy(),
        submit(),
        wait("2s"),
        ("preempt", {}),
    ),
    "a price that a standing grant let through": (
        policy(max_price="ask $0.5"),
        ("ahead", {"user": "bob"}),
        submit(user="bob"),
        wait("2s"),
    ),
    "a machine whose agent is dead, told to stop by a clock that was ahead": (
        policy(),
        submit(max_cost="$10"),
        wait("1m", 2),
        wait("1m"),
        ("kill_agent", {}),
        ("wrong_clock", {}),
        wait("1d"),
    ),
    "a limit for an array whose tasks run without one": (
        policy(),
        submit(machine="H100:8", array="range: 4, parallel: 1"),
        ("price", {"pool": "gcp-8-spot"}),
        ("extend", {"job": 3, "max_cost": "$60"}),
        wait("1d", 6),
    ),
    "what a day was judged for and did not use is not used up by a higher price on the next": (
        policy(amount="$100", period="day"),
        submit(providers="aws", max_duration="30d"),
        wait("1m"),
        wait("1d"),
        ("price", {"times": "40"}),
        wait("1m"),
        wait("10d"),
    ),
    "a node that calls its own end an interruption": (
        policy(),
        submit(),
        ("fate", {"says": "preempted"}),
        wait("10m", 6),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with sqlite_store() as made:
        yield made


@pytest.mark.parametrize("name", SCRIPTS, ids=str)
def test_what_once_broke_the_promise_keeps_it(stage: Stage, name: str) -> None:
    found = replay(stage, SCRIPTS[name])
    assert not found, "\n".join(map(str, found))
