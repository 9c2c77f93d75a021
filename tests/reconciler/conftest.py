import pytest

from broker.core.values.clock import ManualClock
from broker.store import Store
from tests.reconciler.rehearsal import Stage


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    return Stage(store, clock)
