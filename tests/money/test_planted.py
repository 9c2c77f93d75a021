"""The table of planted faults matches the program: the place of each exists, and so do the tests that find it.

Whether they find it is tested by ``python -m tests.money --planted``.
"""

from __future__ import annotations

import pytest

from tests.money.faults import FAULTS, PlantedFault
from tests.money.planted import ROOT, source_with


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.finding)
def test_each_fault_has_one_place_and_something_that_finds_it(fault: PlantedFault) -> None:
    compile(source_with(fault), fault.module, "exec")
    for name in fault.tests:
        file, _, test = name.partition("::")
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), name


def test_each_of_the_fifteen_findings_is_planted() -> None:
    assert {int(fault.finding.rstrip("ab")) for fault in FAULTS} == set(range(1, 16))
