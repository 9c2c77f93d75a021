"""The page in this process, over the company of the server's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.page.browsing import Site, site_of
from tests.server.world import Company, new_world


@pytest.fixture(scope="session")
def seen_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A company's page that tests only look at."""
    world = new_world(tmp_path_factory.mktemp("site"))
    yield site_of(world)
    world.broker.close()


@pytest.fixture(scope="session")
def seen_world(seen_site: Site) -> Company:
    return seen_site.world


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A company's page of the test's own."""
    world = new_world(tmp_path)
    yield site_of(world)
    world.broker.close()
