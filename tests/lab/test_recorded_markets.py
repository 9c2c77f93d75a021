"""On recorded traces, where there are any: GPUBROKER_TEST_DATA names a folder with ``spot/<family>/…``."""

import os
from pathlib import Path

import pytest

from tests.lab.placement import families
from tests.lab.windows import Request, measure

DATA = Path(os.environ.get("GPUBROKER_TEST_DATA", "")) / "spot"
HOUR = 3600.0

pytestmark = pytest.mark.skipif(
    "GPUBROKER_TEST_DATA" not in os.environ or not DATA.is_dir(),
    reason="recorded traces are not part of the project; set GPUBROKER_TEST_DATA to a folder that has them",
)


@pytest.mark.parametrize("family", ["aws-2022-10-26", pytest.param("gcp-h100-2025-10", marks=pytest.mark.system)])
def test_beats_uniform_progress_on_every_deadline_and_never_misses(family: str) -> None:
    request = Request(
        [DATA / family],
        deadlines=[52 * HOUR, 60 * HOUR, 70 * HOUR],
        policies=("gpubroker", "uniform-progress"),
        starts=2,
    )
    cells = families(measure(request)[0])
    assert all(cell.missed == 0 for cell in cells)
    ratio = {(cell.deadline_s, cell.policy): cell.ratio_mean for cell in cells}
    for deadline in request.deadlines:
        assert 1 <= ratio[deadline, "gpubroker"] < ratio[deadline, "uniform-progress"]


def test_several_zones_are_no_dearer_than_going_round_them() -> None:
    request = Request(
        [DATA / "gcp-h100-2025-10"],
        deadlines=[52 * HOUR],
        policies=("gpubroker", "eager-next-region"),
        starts=2,
        together=True,
    )
    planned, eager = families(measure(request)[0])
    assert planned.missed == 0
    assert planned.ratio_mean <= min(eager.ratio_mean, 1.05)
