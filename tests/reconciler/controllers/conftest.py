"""Fixtures of the controllers' tests."""

import pytest

from broker.store import Store
from tests.reconciler.controllers.placing_scene import Scene


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(store)
