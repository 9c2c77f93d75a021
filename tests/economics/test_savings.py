"""The savings ladder and the claims around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.savings import (
    LADDER,
    SavingAdvice,
    WorkloadDescription,
    check_fleet_claim,
    check_together,
    fewer_gpus,
    ladder,
)


def by_name(workload: WorkloadDescription) -> dict[str, SavingAdvice]:
    return {advice.name: advice for advice in ladder(workload)}


def test_the_rungs_come_in_order_and_each_says_what_to_measure() -> None:
    advice = ladder(WorkloadDescription(inference=True, parameters=7e9))
    assert [rung.order for rung in advice] == list(range(1, len(LADDER) + 1))
    assert advice[0].name == "smallest model that meets the bar"
    assert all(rung.measure and rung.condition and rung.why for rung in advice)


def test_exact_output_skips_everything_that_changes_it() -> None:
    exact = by_name(WorkloadDescription(inference=True, parameters=70e9, exact_output=True))
    for name in ("INT8 quantisation", "INT4 quantisation", "pruning", "distillation"):
        assert not exact[name].applies
    assert exact["INT8 quantisation"].why == "the output must be exact"
    assert exact["batching and caching"].applies


def test_small_models_gain_little_from_quantisation() -> None:
    small = by_name(WorkloadDescription(inference=True, parameters=3e9))
    assert not small["INT4 quantisation"].applies
    assert "little" in small["INT4 quantisation"].why
    assert by_name(WorkloadDescription(inference=True, parameters=3.1e9))["INT4 quantisation"].applies


def test_training_gets_training_advice() -> None:
    training = by_name(
        WorkloadDescription(inference=False, parameters=7e9, full_fine_tuning=True, interruptible=True, utilisation=0.3)
    )
    assert training["LoRA or QLoRA instead of full fine-tuning"].applies
    assert "write checkpoints first" in training["spot with checkpoints"].why
    assert training["pooling, MIG, MPS or time-slicing"].applies
    assert training["data loading"].applies
    assert not training["batching and caching"].applies


@given(
    st.builds(
        WorkloadDescription,
        inference=st.booleans(),
        parameters=st.floats(1e8, 1e12),
        exact_output=st.booleans(),
        batched=st.booleans(),
        interruptible=st.booleans(),
        steady_share=st.floats(0, 1),
        utilisation=st.floats(0, 1),
        spare_hours_share=st.floats(0, 1),
    )
)
def test_savings_multiply_and_never_reach_everything(workload: WorkloadDescription) -> None:
    remaining_low = remaining_high = 1.0
    for rung in ladder(workload):
        assert 0 < rung.remaining_low <= remaining_low
        assert rung.remaining_low <= rung.remaining_high <= remaining_high
        remaining_low, remaining_high = rung.remaining_low, rung.remaining_high
        assert rung.applies or (rung.saving_low, rung.saving_high) == (0, 0)


def test_the_quoted_sum_is_shown_beside_the_arithmetic() -> None:
    modest = WorkloadDescription(inference=True, parameters=1e9, exact_output=True, utilisation=0.9)
    assert check_together(ladder(modest)).holds, "only batching is left: 20-60 %"
    everything = WorkloadDescription(
        inference=True, parameters=70e9, interruptible=True, utilisation=0.2, spare_hours_share=0.5
    )
    check = check_together(ladder(everything))
    assert check.holds, "within reach of the steps, which rarely all succeed"
    assert "30%-40%" in check.rule
    assert "rarely" in check.says
    nothing = WorkloadDescription(inference=True, parameters=1e9, exact_output=True, batched=True)
    assert not check_together(ladder(nothing)).holds


def test_alternatives_do_not_multiply() -> None:
    """INT8 or INT4 weights, a smaller model or a student, spot or a reservation: one of each."""
    seen = by_name(
        WorkloadDescription(inference=True, parameters=7e9, interruptible=True, steady_share=0.5, utilisation=0.9)
    )
    assert seen["INT4 quantisation"].remaining_low == pytest.approx(0.2 * 0.2)
    assert seen["INT4 quantisation"].remaining_high == pytest.approx(0.7 * 0.5)
    assert seen["pruning"].remaining_low == seen["INT4 quantisation"].remaining_low
    assert seen["INT4 quantisation"].why.endswith("instead of INT8 quantisation")
    last = seen["egress and storage"]
    assert last.remaining_low == pytest.approx(0.2 * 0.2 * 0.4 * 0.1), "model, weights, batching, spot"
    assert last.remaining_high == pytest.approx(0.6 * 0.5 * 0.8 * 0.4)


def test_utilisation_from_20_to_60_percent_saves_two_thirds_not_93_percent() -> None:
    assert round(fewer_gpus(0.2, 0.6), 2) == 0.67
    claim = check_fleet_claim(0.93, 0.2, 0.6)
    assert not claim.holds
    assert "67%" in claim.says
    assert check_fleet_claim(0.67, 0.2, 0.6).holds


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="utilisation"):
        WorkloadDescription(inference=True, parameters=7e9, utilisation=60)
    with pytest.raises(InvalidInput, match="parameters"):
        WorkloadDescription(inference=True, parameters=0)
    with pytest.raises(InvalidInput, match="utilisation before"):
        fewer_gpus(0, 0.5)
