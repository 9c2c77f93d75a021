"""What tests of the demo share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program import kill, processes


@pytest.fixture(autouse=True)
def nothing_left_running(tmp_path: Path) -> Iterator[None]:
    """Whatever becomes of a test, its processes end with it."""
    yield
    kill(processes(tmp_path))
