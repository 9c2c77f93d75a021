"""One cloud for all scenarios: it takes a minute to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cloud.desk import CloudDesk
from tests.cloud.lab import CloudLab, missing, running_lab
from tests.cloud.slots import taken_slot


@pytest.fixture(scope="session")
def lab() -> Iterator[CloudLab]:
    if lacking := missing():
        pytest.skip(lacking)
    with taken_slot() as slot, running_lab(slot) as running:
        yield running


@pytest.fixture
def desk(lab: CloudLab, tmp_path: Path) -> Iterator[Callable[..., CloudDesk]]:
    """Makes desks. Afterwards nothing of them runs, the cloud refuses nothing, and what went wrong is shown."""
    made: list[CloudDesk] = []

    def sit_down(**more: Any) -> CloudDesk:
        made.append(CloudDesk(lab, tmp_path / f"desk-{len(made)}", **more))
        return made[-1]

    yield sit_down
    lab.aws.refusals.clear()
    lab.aws.after.clear()
    lab.aws.tags_late = 0.0
    lab.nodes.deaf, lab.nodes.minute = False, 60.0
    for one in made:
        one.kill()
    for instance in lab.alive():
        lab.take_back(instance)


@pytest.fixture(autouse=True)
def _shown(lab: CloudLab, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.session.testsfailed:
        print(lab.last_words()[-12000:])
