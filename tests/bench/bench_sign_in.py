"""What it takes to know who asks: a session at the page, a token at the API. Run: python -m tests.bench.bench_sign_in

The whole check between a request and its page, or its route: two hundred people with a token and a session each, on
SQLite and on a PostgreSQL of its own, asked for in turn. It is what signing in adds to a request.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import Request

from broker.app.access import people, sessions, tokens
from broker.app.wiring import Broker
from broker.core.access.people import TeamRole
from broker.core.access.permissions import Permission, TokenScope
from broker.page import visitors
from broker.server import callers
from broker.server.callers import EntryControl
from broker.server.request_rate import RequestRate
from broker.server.wrong_tokens import WrongTokens
from tests.actors import ROOT
from tests.bench.bench_million import database
from tests.server.world import DAY, new_broker

PEOPLE, TIMES = 200, 4_000
LIMIT = 1.0
"""Milliseconds at the 95th percentile."""


def request(header: str, value: str, app: Any) -> Request:
    """One as the server hands it on."""
    found = Request(
        {
            "type": "http", "method": "GET", "path": "/", "query_string": b"", "client": ("127.0.0.1", 4000),
            "headers": [(header.encode(), value.encode())], "app": app,
        }
    )  # fmt: skip
    found.state.request_id = "bench"
    return found


def checks(broker: Broker) -> dict[str, Callable[[int], None]]:
    """The checks by name, for the person of a number."""
    cookie, rate, texts, ids = visitors.Cookie(secure=False), RequestRate(10**9), list[str](), list[str]()
    for number in range(PEOPLE):
        people.add(broker, f"person-{number}", by=ROOT)
        people.give_role(broker, f"person-{number}", TeamRole.MEMBER, "nlp", by=ROOT)
        texts.append(tokens.create(broker, f"person-{number}", "", [TokenScope.READ], DAY, by=ROOT).text)
        id = sessions.sign_in(broker, texts[-1], origin="bench")
        assert id is not None
        ids.append(id)
    at_page = visitors.gate(broker, cookie, Permission.SEE_JOBS, rate)
    at_api = callers.gate(Permission.SEE_JOBS, counted=True)
    app = SimpleNamespace(state=SimpleNamespace(entry=EntryControl(broker, WrongTokens(), rate)))
    return {
        "a session at the page": lambda one: at_page(request("cookie", f"{cookie.name}={ids[one]}", app)),
        "a token at the API": lambda one: at_api(request("authorization", f"Bearer {texts[one]}", app)),
    }


def milliseconds(check: Callable[[int], None]) -> tuple[Sequence[float], Sequence[float]]:
    """By the clock, and of this thread's CPU, of each of `TIMES` calls, after one for each person that warms up."""
    for number in range(PEOPLE):
        check(number)
    by_clock, own = [], []
    for number in range(TIMES):
        began, cpu = time.perf_counter(), time.thread_time()
        check(number * 7919 % PEOPLE)
        by_clock.append(1000 * (time.perf_counter() - began))
        own.append(1000 * (time.thread_time() - cpu))
    return by_clock, own


def percentiles(found: Sequence[float]) -> str:
    at = statistics.quantiles(found, n=100)
    return f"median {at[49]:.3f}  p95 {at[94]:.3f}  p99 {at[98]:.3f}"


def main() -> None:
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory() as name, database(kind, Path(name)) as url:
            broker = new_broker(Path(name), url)
            for what, check in checks(broker).items():
                by_clock, own = milliseconds(check)
                print(f"{kind}: {what}, ms (p95 at most {LIMIT})", flush=True)
                print(f"  by the clock {percentiles(by_clock)}   CPU of this thread {percentiles(own)}", flush=True)
            broker.close()


if __name__ == "__main__":
    main()
