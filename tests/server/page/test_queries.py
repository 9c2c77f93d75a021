"""What a page asks of the store does not grow with the rows that it shows: every page, with a few and with many."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from broker.app.use_cases import shared_results
from broker.core.values.clock import ManualClock
from broker.server.page.application import PAGES
from tests.actors import with_clock
from tests.server.page.browsing import Browser, site_of
from tests.server.page.grown import grow
from tests.server.world import Company, new_world

# Anew about once a second, whatever is on a page: machines of this machine and of the simulated market are asked for.
POLLED = re.compile(r"^BEGIN|poll_run")
LISTED = re.compile(r"IN \([^()]*\)")  # longer lists are no more queries
FILTERED = ("/jobs?state=queued", "/offers?gpu=H100", "/prices?gpu=H100:8", "/reports?by=job&only=team:nlp")
# Every page in the table, and some as people filter them. A download is no page, nor is a stream.
LOOKS = [one.path for one in PAGES if one.method == "GET" and not one.path.endswith(("{sha256}", "{preview}", "/news"))]
PATHS = [*LOOKS, *FILTERED]


def address(path: str, world: Company) -> str:
    """Of the page for one of which there is more."""
    path = path.replace("/jobs/cancel", f"/jobs/cancel?job={world.mine}")
    id = "nlp" if path.startswith("/budgets") else world.mine
    return path.format(id=id, number=1, purchase=f"purchase-{0:012d}", name="mia")


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not POLLED.search(statement):
            found.append(LISTED.sub("IN (…)", statement))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def visit(browser: Browser, path: str) -> list[str]:
    """What a page asks that was open a moment ago: the fewest statements of two visits."""
    found = []
    for _ in range(2):
        with counted() as statements:
            answer = browser.get(path)
        assert answer.status_code == 200, (path, answer.text)
        found.append(statements)
    return min(found, key=len)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, tuple[list[str], list[str]]]]:
    """By page: what it asks with two of everything, and with six."""
    made = new_world(tmp_path_factory.mktemp("grown"))
    still = ManualClock(made.broker.clock.now())  # else a busy machine polls at each visit
    world = replace(made, broker=with_clock(made.broker, still))
    browser = site_of(world).of("adam")
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shared_results, "_MIN_DURATION", math.inf
        )  # on a busy machine sums are kept, and then not asked for
        for more in (range(2), range(2, 6)):
            grow(world, more)
            found.append({path: visit(browser, address(path, world)) for path in PATHS})
    few, many = found
    yield {path: (few[path], many[path]) for path in PATHS}
    world.broker.close()


@pytest.mark.parametrize("path", PATHS)
def test_more_rows_are_no_more_queries(asked: Mapping[str, tuple[list[str], list[str]]], path: str) -> None:
    few, many = asked[path]
    assert len(many) <= len(few), "\n".join(sorted((Counter(many) - Counter(few)).elements()))
