"""One broker, used by many threads at once for several people, as a server does it."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.job.file import parse_job
from tests.actors import ANN, BOB, OLGA, person

POLICY = "version: 1\npolicy: t\nbudgets: [{name: all, amount: $1000, period: month, counts: [sandbox]}]\n"
JOB = """\
name: {name}
run: 'true'
resources: {{cpus: 1}}
max_duration: 1h
max_cost: $1
constraints: {{providers: [sandbox]}}
"""
PEOPLE = (ANN, BOB, OLGA, person("dave"), person("eve"), person("mallory"), person("carl"), person("uma"))


def at_once(*calls: Callable[[], object]) -> list[Any]:
    """What each returns; all of them start together."""
    together = threading.Barrier(len(calls))

    def one(call: Callable[[], object]) -> object:
        together.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def test_many_threads_submit_list_and_cancel_on_one_broker(broker: Broker) -> None:
    """Each as somebody else: every event bears the name of who did it, and nobody stops the job of another."""
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")

    def works(me: Actor, other: Actor) -> None:
        for number in (1, 2):
            text = JOB.format(name=f"{me.identity}-{number}")
            view = submit(broker, parse_job(text, file="job.yaml", now=broker.clock.now()), by=me)
            assert view.user == me.identity
            assert next(one.id for one in jobs.search(broker, users=[me.identity]).views) == view.id
            with pytest.raises(NotAllowed, match=f"you are {other.identity}"):
                jobs.cancel(broker, view, by=other)
            if number == 1:
                assert jobs.cancel(broker, view, by=me).cancel_requested

    at_once(*(lambda me=me, other=other: works(me, other) for me, other in zip(PEOPLE, PEOPLE[::-1], strict=True)))
    views = jobs.search(broker).views
    assert Counter(view.user for view in views) == {one.identity: 2 for one in PEOPLE}
    for view in views:
        stopped = [one.body.by for one in jobs.events(broker, view) if isinstance(one.body, ev.CancelRequested)]
        assert stopped == ([view.user] if view.cancel_requested else [])
        assert view.cancel_requested == view.job.name.endswith("-1")
