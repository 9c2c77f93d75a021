"""Every store test runs on SQLite, and in the system tests on PostgreSQL, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from tests.empty_store import empty_store


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that does not hold a store yet, unless the test asks for a ``store``."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return str(request.getfixturevalue("new_postgres_store" if "store" in request.fixturenames else "new_postgres")())


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[Store]:
    """An empty store of its own."""
    if url.startswith("sqlite:///"):
        empty_store(Path(url.removeprefix("sqlite:///")))
    opened = open_store(url, clock=clock)
    yield opened
    opened.close()
