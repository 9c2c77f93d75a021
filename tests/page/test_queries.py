"""What a page asks of the store does not grow with the rows that it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.page.browsing import Browser, Site
from tests.server.world import submitted

MARKET = re.compile(r"^BEGIN|\b(offer|poll_run|pool|price_change|signal_change)\b")


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are executed meanwhile, except those about the market: this machine is asked anew about once
    a second, however many jobs there are."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not MARKET.search(statement):
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def visit(browser: Browser, path: str) -> list[str]:
    with counted() as statements:
        browser.get(path)
    return statements


@pytest.mark.parametrize("path", ["/jobs", "/", "/approvals"])
def test_more_jobs_are_no_more_queries(site: Site, path: str) -> None:
    browser = site.of("adam")
    browser.get(path)
    few = visit(browser, path)
    for number in range(4):
        submitted(site.world.broker, f"more-{number}", "mia", "nlp", most="6h" if path == "/approvals" else "2h")
    many = visit(browser, path)
    assert "more-3" in browser.get(path).text
    assert len(many) <= len(few), "\n".join(many[len(few) :])
