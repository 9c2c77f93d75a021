"""What many tests share. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from broker.core.clock import ManualClock
    from broker.store import Store


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at noon of 2 March 2026, UTC, until it is moved."""
    from broker.core.clock import ManualClock

    return ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    """An empty SQLite store of its own."""
    from broker.store import open_store

    opened = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=clock)
    yield opened
    opened.close()
