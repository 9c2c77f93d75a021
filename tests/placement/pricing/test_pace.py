"""Work converted by what earlier attempts showed, and said so; by the table where nothing was measured."""

from datetime import timedelta
from typing import Any

import pytest

from broker.core.job.jobs import MachineRequest, Work
from broker.placement.pricing.conditions import Conditions, Pace, Paces, measured_speed
from broker.placement.pricing.run_model import Effort, speed

Make = Any
A100, H100, L4 = ("A100", 8), ("H100", 8), ("L4", 8)


def test_nothing_measured_the_table_speaks(make: Make) -> None:
    effort = Effort.of(make.job(work=Work(duration=timedelta(hours=9), accelerator="A100", count=8)), Conditions())
    throughput, how = speed(effort, *H100)
    assert throughput > 2
    assert "by their peak speeds" in how
    assert measured_speed({}, H100, A100) is None


def test_against_the_reference_itself() -> None:
    paces: Paces = {H100: Pace(300, 2), A100: Pace(100, 1)}
    throughput, how = measured_speed(paces, H100, A100) or (0, "")
    assert throughput == pytest.approx(1.5)
    assert "1.50 × what A100:8 does, measured over 2 h of earlier attempts)" in how
    assert measured_speed(paces, A100, A100) is None
    assert measured_speed(paces, L4, A100) is None


def test_another_number_of_cards_is_in_proportion() -> None:
    throughput, how = measured_speed({("H100", 4): Pace(100, 1), A100: Pace(100, 1)}, H100, A100) or (0, "")
    assert throughput == pytest.approx(2.0)
    assert how.endswith("of earlier attempts with H100:4)")


def test_one_machine_alone_says_nothing_of_another() -> None:
    assert measured_speed({H100: Pace(100, 1)}, H100, A100) is None


def test_two_machines_say_how_they_compare_though_the_reference_was_not_measured() -> None:
    paces: Paces = {H100: Pace(100, 1), L4: Pace(100, 1)}
    first, second = measured_speed(paces, H100, A100), measured_speed(paces, L4, A100)
    assert first
    assert second
    assert first[0] == pytest.approx(second[0])


def test_a_plan_reckons_with_it_and_says_so(make: Make) -> None:
    job = make.job(
        resources=(MachineRequest(accelerator="H100", count=8),),
        work=Work(duration=timedelta(hours=20), accelerator="A100", count=8),
    )
    conditions = Conditions(engines=make.conditions.engines, paces={H100: Pace(400, 1), A100: Pace(100, 1)})
    plan = make.plan([make.offer("10")], job, conditions=conditions)
    assert plan.best.throughput == pytest.approx(4.0)
    compute = plan.best.terms[0]
    assert compute.amount.micros == pytest.approx(50_000_000)
    assert "measured over 1 h of earlier attempts" in compute.how
