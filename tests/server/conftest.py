"""The API in this process, over a store of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.world import Company, new_world


@pytest.fixture(scope="session")
def seen_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """A company that tests only look at."""
    world = new_world(tmp_path_factory.mktemp("company"))
    yield world
    world.broker.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Company]:
    """A company of the test's own."""
    world = new_world(tmp_path)
    yield world
    world.broker.close()
