"""One cluster for all scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.apart import not_apart, own_folder
from tests.kubernetes.desk import KubernetesDesk
from tests.kubernetes.lab import KubernetesLab, missing, running_lab


@pytest.fixture(scope="session")
def lab() -> Iterator[KubernetesLab]:
    if why := missing() or not_apart():
        pytest.skip(why)
    with own_folder() as folder, running_lab(folder) as running:
        yield running


@pytest.fixture
def desk(lab: KubernetesLab, tmp_path: Path) -> Iterator[KubernetesDesk]:
    """Afterwards nothing of it runs, and the cluster is as before."""
    made = KubernetesDesk(lab, tmp_path / "desk")
    yield made
    made.sky.kill()
    lab.clear()


@pytest.fixture(autouse=True)
def _shown(lab: KubernetesLab, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.session.testsfailed:
        print(lab.last_words()[-20000:])
