"""Which cards hold what, and the parallelism that follows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import accelerator_names, lookup
from broker.economics.fits import Fit, find_fits, smallest_layout
from broker.economics.kinds import Method, Precision
from broker.economics.memory import ModelUse, ParallelLayout, estimate
from broker.economics.model import ModelShape
from broker.economics.parallelism import Strategy, choose

ALL = tuple(lookup(name) for name in accelerator_names())


def found(workload: ModelUse) -> dict[str, Fit]:
    return {fit.accelerator: fit for fit in find_fits(estimate(workload), ALL)}


def test_a_7b_adapter_fits_on_any_current_card_and_a_full_fine_tune_does_not() -> None:
    qlora = found(ModelUse(7e9, Method.QLORA))
    assert {qlora[name].gpus for name in ("T4", "L4", "RTX4090", "A100", "H100")} == {1}
    full = found(ModelUse(7e9))
    assert "RTX4090" not in full, "consumer cards hold only what fits on one of them"
    assert full["H100"].gpus == full["H100"].lower_bound == 2
    assert full["MI300X"].gpus == full["B200"].gpus == 1


def test_4_bit_needs_its_kernels_and_inference_chips_do_not_train() -> None:
    assert "V100" not in found(ModelUse(7e9, Method.QLORA)), "compute capability 7.0 is below 7.5"
    assert "Inferentia2" not in found(ModelUse(1e9))
    assert "Inferentia2" in found(ModelUse(7e9, Method.INFERENCE))


def test_caveats_are_said() -> None:
    shape = ModelShape(32, 4096, 32, 8, 128)
    old = found(ModelUse(7e9, Method.INFERENCE, context=4096, shape=shape))["T4"]
    assert any("FlashAttention-2" in caveat for caveat in old.caveats)
    assert any("no BF16" in caveat for caveat in old.caveats)
    assert any("porting" in caveat for caveat in found(ModelUse(7e9))["MI300X"].caveats)


def test_a_given_layout_is_kept() -> None:
    needs = estimate(ModelUse(7e9), ParallelLayout(gpus=8, zero=3))
    kept = find_fits(needs, ALL, fixed=True)
    assert {fit.gpus for fit in kept} == {8}
    assert "H100" in {fit.accelerator for fit in kept}
    assert "T4" not in {fit.accelerator for fit in kept}


@settings(deadline=None)
@given(st.floats(1e8, 2e11), st.sampled_from(list(Method)), st.sampled_from(ALL))
def test_what_fits_stays_within_the_card_and_above_the_lower_bound(
    parameters: float, method: Method, accelerator: object
) -> None:
    for fit in find_fits(estimate(ModelUse(parameters, method)), [accelerator]):  # type: ignore[list-item]  # sampled
        assert fit.per_gpu_gib <= fit.usable_gib
        assert fit.gpus >= fit.lower_bound
        assert fit.tensor_parallel * fit.pipeline_parallel * fit.data_parallel == fit.gpus
        assert fit.tensor_parallel <= 8


@settings(deadline=None)
@given(st.floats(1e8, 1e11), st.floats(1, 4))
def test_a_larger_model_never_takes_fewer_cards(parameters: float, factor: float) -> None:
    h100 = lookup("H100")
    small = smallest_layout(estimate(ModelUse(parameters)), h100)
    large = smallest_layout(estimate(ModelUse(parameters * factor)), h100)
    assert small is not None
    assert large is None or large.gpus >= small.gpus


def test_it_fits_on_one_card() -> None:
    plan = choose(estimate(ModelUse(1e9)), lookup("A100-80GB"), gpus=4)
    assert plan.strategy is Strategy.DATA
    assert (plan.data_parallel, plan.tensor_parallel, plan.pipeline_parallel) == (4, 1, 1)
    assert plan.interconnect == "none"
    assert (plan.memory, plan.throughput, plan.latency, plan.complexity) == (
        "full copy each",
        "near-linear",
        "low",
        "simple",
    )


def test_it_does_not_fit_and_there_is_nvlink() -> None:
    serving = estimate(ModelUse(70e9, Method.INFERENCE))
    plan = choose(serving, lookup("H100"))
    assert (plan.strategy, plan.tensor_parallel, plan.interconnect) == (Strategy.TENSOR, 2, "nvlink")
    assert plan.machine == "H100:2"
    assert plan.warnings == ()


def test_it_does_not_fit_and_there_is_no_nvlink() -> None:
    plan = choose(estimate(ModelUse(70e9, Method.INFERENCE)), lookup("L40S"))
    assert plan.strategy is Strategy.PIPELINE
    assert plan.tensor_parallel == 1
    assert plan.interconnect == "pcie"
    assert any("smaller model" in warning for warning in plan.warnings)
    assert any("slower" in warning for warning in plan.warnings)
    bridged = choose(estimate(ModelUse(70e9, Method.INFERENCE)), lookup("H100"), linked=False)
    assert bridged.strategy is Strategy.PIPELINE, "the machine on offer decides, not the card"


def test_model_and_data_are_both_beyond_one_machine() -> None:
    plan = choose(estimate(ModelUse(70e9)), lookup("H100"), gpus=64)
    assert plan.strategy is Strategy.HYBRID
    assert plan.gpus == 64
    assert plan.tensor_parallel == 8
    assert (plan.machine, plan.num_nodes) == ("H100:8", 8)
    assert plan.per_gpu_gib <= plan.usable_gib


def test_sharded_training_inside_one_machine() -> None:
    plan = choose(estimate(ModelUse(20e9)), lookup("B200"))
    assert plan.strategy is Strategy.FSDP
    assert plan.zero == 3


def test_consumer_cards_do_not_share_a_model() -> None:
    with pytest.raises(InvalidInput, match="consumer cards"):
        choose(estimate(ModelUse(70e9, Method.INFERENCE)), lookup("RTX4090"))
    single = choose(estimate(ModelUse(7e9, Method.INFERENCE, Precision.INT4)), lookup("RTX4090"))
    assert any("heat" in warning for warning in single.warnings)


@settings(deadline=None)
@given(st.floats(1e8, 1e11), st.integers(1, 256), st.booleans())
def test_a_plan_always_holds_and_gives_at_least_what_was_asked(parameters: float, gpus: int, linked: bool) -> None:
    plan = choose(estimate(ModelUse(parameters)), lookup("A100-80GB"), gpus=gpus, linked=linked)
    assert plan.per_gpu_gib <= plan.usable_gib
    assert plan.gpus >= gpus
    assert plan.gpus == plan.tensor_parallel * plan.pipeline_parallel * plan.data_parallel
    assert linked or plan.tensor_parallel == 1
