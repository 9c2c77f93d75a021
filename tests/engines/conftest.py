"""What several tests of engines start."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import skypilot as fake


@pytest.fixture
def sky(tmp_path: Path) -> Iterator[fake.Sky]:
    (tmp_path / "sky").mkdir(mode=0o700)
    with contextlib.closing(fake.Sky(tmp_path / "sky" / "nodes")) as running:
        yield running
