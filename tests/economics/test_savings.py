"""The savings ladder and the claims around it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.economics.assumptions import DEFAULTS
from broker.economics.kinds import Fact, Method
from broker.economics.savings import SavingAdvice, check_combined_saving, check_fleet_claim, fewer_gpus, ladder

INFERENCE = Method.INFERENCE


def by_name(
    parameters: float, method: Method | None, *facts: Fact, utilization: float = 0.5, steady: float = 0.0
) -> dict[str, SavingAdvice]:
    known = replace(DEFAULTS, gpu_utilization=utilization, steady_share=steady)
    return {advice.name: advice for advice in ladder(parameters, method, facts, known)}


def test_the_steps_come_in_order_and_each_says_what_to_measure() -> None:
    advice = ladder(7e9, INFERENCE)
    assert [step.order for step in advice] == list(range(1, 14))
    assert advice[0].name == "smallest model that meets the bar"
    assert all(step.measure and step.condition and step.why for step in advice)


def test_exact_output_skips_everything_that_changes_it() -> None:
    exact = by_name(70e9, INFERENCE, Fact.EXACT_OUTPUT)
    for name in ("INT8 quantization", "INT4 quantization", "pruning", "distillation"):
        assert not exact[name].applies
    assert exact["INT8 quantization"].why == "the output must be exact"
    assert exact["batching and caching"].applies


def test_small_models_gain_little_from_quantization() -> None:
    small = by_name(3e9, INFERENCE)["INT4 quantization"]
    assert (small.applies, "little" in small.why) == (False, True)
    assert by_name(3.1e9, INFERENCE)["INT4 quantization"].applies


def test_what_was_not_said_is_not_claimed() -> None:
    unsaid = {advice.name: advice.why for advice in ladder(70e9, INFERENCE)}
    assert unsaid["spot with checkpoints"] == "not said to be interruptible"
    assert unsaid["reserve the baseline"] == "not said how much of the demand is steady"
    assert unsaid["autoscale, scale to zero"] == "not said how many paid hours are idle"
    assert unsaid["pooling, MIG, MPS or time-slicing"] == "the GPUs are taken to be 50% busy"
    assert by_name(70e9, INFERENCE, steady=0.2)["reserve the baseline"].why == "only 20% of the demand is steady"


def test_training_gets_training_advice() -> None:
    training = by_name(7e9, Method.ADAMW, Fact.INTERRUPTIBLE, utilization=0.3)
    assert training["LoRA or QLoRA instead of full fine-tuning"].applies
    assert "write checkpoints first" in training["spot with checkpoints"].why
    assert training["pooling, MIG, MPS or time-slicing"].applies
    assert training["data loading"].applies
    assert not training["batching and caching"].applies


@given(
    st.floats(1e8, 1e12), st.sampled_from([None, *Method]), st.sets(st.sampled_from(Fact)), st.floats(0.01, 1),
    st.floats(0, 1), st.floats(0, 1),
)  # fmt: skip
def test_savings_multiply_and_never_reach_everything(
    parameters: float, method: Method | None, facts: set[Fact], utilization: float, steady: float, spare: float
) -> None:
    known = replace(DEFAULTS, gpu_utilization=utilization, steady_share=steady, spare_hours_share=spare)
    low = high = 1.0
    for step in ladder(parameters, method, facts, known):
        assert 0 < step.remaining_low <= low
        assert step.remaining_low <= step.remaining_high <= high
        low, high = step.remaining_low, step.remaining_high
        assert step.applies or (step.saving_low, step.saving_high) == (0, 0)


def test_the_quoted_sum_is_shown_beside_the_arithmetic() -> None:
    busy = replace(DEFAULTS, gpu_utilization=0.9)
    assert check_combined_saving(ladder(1e9, INFERENCE, [Fact.EXACT_OUTPUT], busy)).holds, (
        "only batching is left: 20-60 %"
    )
    check = check_combined_saving(ladder(70e9, INFERENCE, [Fact.INTERRUPTIBLE]))
    assert check.holds, "within reach of the steps, which rarely all succeed"
    assert "30%-40%" in check.rule
    assert not check_combined_saving(ladder(1e9, INFERENCE, [Fact.EXACT_OUTPUT, Fact.BATCHED], busy)).holds


def test_alternatives_do_not_multiply() -> None:
    """INT8 or INT4 weights, a smaller model or a student, spot or a reservation: one of each."""
    seen = by_name(7e9, INFERENCE, Fact.INTERRUPTIBLE, utilization=0.9, steady=0.5)
    assert seen["INT4 quantization"].remaining_low == pytest.approx(0.2 * 0.2)
    assert seen["INT4 quantization"].remaining_high == pytest.approx(0.7 * 0.5)
    assert seen["pruning"].remaining_low == seen["INT4 quantization"].remaining_low
    assert seen["INT4 quantization"].why.endswith("instead of INT8 quantization")
    last = seen["egress and storage"]
    assert last.remaining_low == pytest.approx(0.2 * 0.2 * 0.4 * 0.1), "model, weights, batching, spot"
    assert last.remaining_high == pytest.approx(0.6 * 0.5 * 0.8 * 0.4)


def test_utilization_from_20_to_60_percent_saves_two_thirds_not_93_percent() -> None:
    assert round(fewer_gpus(0.2, 0.6), 2) == 0.67
    claim = check_fleet_claim(0.93, 0.2, 0.6)
    assert (claim.holds, claim.says) == (False, "it saves 67%")
    assert check_fleet_claim(0.67, 0.2, 0.6).holds
