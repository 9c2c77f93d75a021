"""A broker of one's own for the use cases: real providers, engines and store in a folder of the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.app.wiring import Broker
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.empty_store import empty_store


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[[], Broker]]:
    """Brokers over one store, as several processes would have them."""
    made: list[Broker] = []
    url = empty_store(tmp_path / "store.db")

    def new() -> Broker:
        settings = Settings(home=tmp_path, store=url, runs=(tmp_path / "runs").as_uri())
        made.append(Broker(settings, registries(), EVERYBODYS))
        return made[-1]

    yield new
    for broker in made:
        broker.close()


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    return new_broker()
