"""A broker of one's own for the use cases: real providers, engines and store in a folder of the test's."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.empty_store import empty_store


@cache
def _with_prices() -> bytes:
    """A store with the price book in it, as any has from its first look at the market on. Made once a process."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        broker = Broker(Settings(home=folder, store=empty_store(folder / "store.db")), registries(), EVERYBODYS)
        freshen(broker)
        broker.close()
        return (folder / "store.db").read_bytes()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A store with the price book in it. Tests of prices have an empty one instead."""
    (tmp_path / "store.db").write_bytes(_with_prices())
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def new_broker(tmp_path: Path, store_url: str) -> Iterator[Callable[[], Broker]]:
    """Brokers over one store, as several processes would have them."""
    made: list[Broker] = []

    def new() -> Broker:
        settings = Settings(home=tmp_path, store=store_url, runs=(tmp_path / "runs").as_uri())
        made.append(Broker(settings, registries(), EVERYBODYS))
        return made[-1]

    yield new
    for broker in made:
        broker.close()


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    return new_broker()
