"""What a page asks of the store does not grow with the rows that it shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.page.browsing import Browser, Site
from tests.server.world import submitted


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def visits(browser: Browser, path: str) -> list[list[str]]:
    """The statements of each of three visits. Some have more: they ask this machine anew, about once a second."""
    found = []
    for _ in range(3):
        with counted() as statements:
            browser.get(path)
        found.append(statements)
    return found


@pytest.mark.parametrize("path", ["/jobs", "/"])
def test_more_jobs_are_no_more_queries(site: Site, path: str) -> None:
    browser = site.of("adam")
    browser.get(path)
    few = min(visits(browser, path), key=len)
    for number in range(4):
        submitted(site.world.broker, f"more-{number}", "mia", "nlp")
    many = min(visits(browser, path), key=len)
    assert "more-3" in browser.get(path).text
    assert len(many) <= len(few), "\n".join(many[len(few) :])
