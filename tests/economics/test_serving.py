"""Serving plans, queueing, scale to zero, and routing to the smallest model that works."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Precision
from broker.economics.memory import Subject
from broker.economics.model import ModelShape
from broker.economics.replica import ServedModel, replica_speed, with_measured_pace
from broker.economics.serving import TaskClass, Tier, erlang_c, p95_seconds, plan, route, scale_to_zero
from broker.economics.serving_options import (
    GpuHourPrices,
    MachinePrice,
    ServingOption,
    cheapest_mix,
    latencies,
    options,
    with_simulated_best,
    with_simulation,
)


def traffic(requests: float, tokens: float = 200, headroom: float = 0.2, **more: Any) -> Assumptions:
    known: dict[str, Any] = {"prompt_tokens": 0, **more}
    return replace(
        DEFAULTS, requests_per_minute=requests, tokens_per_request=tokens, serving_headroom=headroom, **known
    )


def model(parameters: float, shape: ModelShape | None = None) -> Subject:
    return Subject(parameters, parameters, shape)


EXAMPLE = traffic(1000, p95_s=5)
LLAMA_8B = ModelShape(32, 4096, 32, 8, 128)


def test_the_quoted_example() -> None:
    sized = plan(EXAMPLE, tokens_per_second_per_replica=400, gpus_per_replica=2)
    assert round(sized.demand_tokens_per_second) == 3333
    assert sized.required_tokens_per_second == pytest.approx(4000)
    assert (sized.replicas, sized.gpus) == (10, 20)
    assert sized.tokens_per_second_per_request == 40
    assert sized.meets_latency is None, "nothing is known of one request's speed"


def test_latency_can_ask_for_more_replicas() -> None:
    relaxed = plan(EXAMPLE, tokens_per_second_per_replica=400, batch=8)
    assert relaxed.meets_latency
    assert relaxed.p95_s is not None
    assert relaxed.p95_s <= 5
    tight = plan(
        traffic(60, headroom=0.0, p95_s=1.05),
        tokens_per_second_per_replica=200,
        batch=1,
    )
    assert tight.replicas > 1, "one replica would be exactly busy"
    assert tight.meets_latency


def test_a_request_that_is_too_slow_alone_is_said_so() -> None:
    slow = plan(EXAMPLE, tokens_per_second_per_replica=400, batch=16)
    assert slow.meets_latency is False, "16 at once get 25 tokens/s each; 40 are needed"
    assert slow.replicas == 10


def test_erlang_c_of_the_textbook() -> None:
    assert erlang_c(2.0, 3) == pytest.approx(0.4444, abs=1e-4)
    assert erlang_c(8.0, 10) == pytest.approx(0.4092, abs=1e-4)
    assert p95_seconds(1.0, 0.5, 1) == pytest.approx(0.5 + math.log(0.5 / 0.05) / (2 - 1))
    assert math.isinf(p95_seconds(10, 1, 10))


@given(st.floats(0.1, 500), st.floats(0.05, 20), st.integers(1, 300))
def test_more_slots_never_wait_longer(rate: float, service: float, slots: int) -> None:
    assert p95_seconds(rate, service, slots + 1) <= p95_seconds(rate, service, slots) + 1e-9


@given(st.floats(1, 1e4), st.floats(1, 4000), st.floats(0, 2), st.floats(50, 1e5))
def test_replicas_carry_the_demand_and_no_more_than_one_is_spare(
    requests: float, tokens: float, headroom: float, speed: float
) -> None:
    sized = plan(traffic(requests, tokens, headroom), tokens_per_second_per_replica=speed)
    assert sized.replicas * speed >= sized.required_tokens_per_second * (1 - 1e-6)
    assert (sized.replicas - 1) * speed < sized.required_tokens_per_second or sized.replicas == 1


def test_options_for_each_card_and_precision() -> None:
    cards = [
        (lookup("H100"), GpuHourPrices(owned=1.5, reserved=2.0, on_demand=3.0)),
        (lookup("L4"), GpuHourPrices(on_demand=0.7)),
        (lookup("RTX3090"), GpuHourPrices()),
    ]
    found = options(model(8e9, LLAMA_8B), cards, replace(EXAMPLE, context=2048, batch=8))
    named = {(option.accelerator, option.precision): option for option in found}
    assert ("L4", Precision.FP16) in named
    assert ("RTX3090", Precision.FP8) not in named, "no FP8 units"
    h100 = named["H100", Precision.FP16]
    assert h100.monthly_usd_on_demand == pytest.approx(h100.gpus * 3.0 * 730)
    assert h100.monthly_usd_on_demand is not None
    assert h100.monthly_usd_owned == pytest.approx(h100.monthly_usd_on_demand / 2)
    assert h100.meets_latency
    assert named["H100", Precision.INT4].gpus <= h100.gpus
    costs = [option.monthly_usd_on_demand for option in found if option.meets_latency and option.monthly_usd_on_demand]
    assert costs == sorted(costs)
    assert found[0].meets_latency


def test_a_mix_is_of_two_kinds_and_of_one_precision() -> None:
    prices = {"A10G": 1.01, "A100-80GB": 3.67, "L4": 0.7}
    cards = [(lookup(name), GpuHourPrices(machines=(MachinePrice(1, usd),))) for name, usd in prices.items()]
    found = options(model(7e9), cards, traffic(1400))
    speeds = {(one.accelerator, one.precision): one.tokens_per_second_per_replica for one in found}
    for required in (10.0, 5000.0, 20_000.0, 77_777.0):
        pairs = [
            (a, b, number, math.ceil((required - number * speeds[a, precision]) / speeds[b, precision]))
            for precision in Precision
            for a in prices
            for b in prices
            if a != b and (a, precision) in speeds and (b, precision) in speeds
            for number in [int(required // speeds[a, precision])]
            if number
        ]
        least = min(((prices[a] * first + prices[b] * second) * 730 for a, b, first, second in pairs), default=None)
        mix = cheapest_mix(found, required)
        assert (mix and mix[0]) == (least and pytest.approx(least))
    assert cheapest_mix([one for one in found if one.accelerator == "L4"], 5000) is None
    no_pair = [one for one in found if (one.accelerator == "L4") == (one.precision is Precision.INT8)]
    assert all("int8" not in mix[1] for mix in [cheapest_mix(no_pair, 5000)] if mix)


def test_scale_to_zero_saves_idle_hours_and_costs_cold_starts() -> None:
    sleepy = replace(traffic(600 / 1440 / 0.25), idle_share=0.75, cold_starts_per_day=12)
    found = scale_to_zero(2, 1, sleepy)
    assert found.warm_usd_per_month == 1460
    assert found.saving_usd_per_month == pytest.approx(1460 * (0.75 - 0.2 / 24))
    assert found.delayed_share == pytest.approx(0.02)
    kept = scale_to_zero(2, 2, replace(sleepy, warm_replicas=1))
    assert kept.delayed_share == 0
    assert 0 < kept.saving_usd_per_month < 2 * 1460 / 2
    assert scale_to_zero(2, 1, replace(sleepy, idle_share=0, cold_starts_per_day=0)).saving_usd_per_month == 0


TIERS = (Tier("8B", 0.70, 0.5, 0.001), Tier("70B", 0.85, 2.0, 0.010), Tier("405B", 0.92, 6.0, 0.060))


def test_each_task_goes_to_the_smallest_model_that_meets_its_bar() -> None:
    routed = route(
        TIERS,
        [
            TaskClass("classify", 8000, 0.65),
            TaskClass("summarise", 1500, 0.80),
            TaskClass("reason", 500, 0.90),
            TaskClass("instant expert", 10, 0.90, latency_s=1.0),
        ],
    )
    assert {tier.model: tier.tasks for tier in routed.tiers} == {
        "8B": ("classify",), "70B": ("summarise",), "405B": ("reason",)
    }  # fmt: skip
    assert routed.unserved == ("instant expert",)
    assert [tier.share_of_tasks for tier in routed.tiers] == [0.8, 0.15, 0.05]
    assert routed.cost_usd == pytest.approx(8 + 15 + 30)
    assert routed.largest_only_usd == pytest.approx(600)
    assert routed.saving == pytest.approx(1 - 53 / 600)


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 0.92)), min_size=1, max_size=8))
def test_routing_never_costs_more_than_the_largest_for_all(tasks: list[tuple[int, float]]) -> None:
    routed = route(TIERS, [TaskClass(f"t{i}", count, quality) for i, (count, quality) in enumerate(tasks)])
    assert routed.unserved == ()
    assert 0 <= routed.cost_usd <= routed.largest_only_usd
    assert sum(tier.share_of_tasks for tier in routed.tiers) == pytest.approx(1)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="throughput of a replica"):
        plan(EXAMPLE, tokens_per_second_per_replica=0)
    with pytest.raises(InvalidInput, match="replicas"):
        plan(traffic(1e12, 1e6), tokens_per_second_per_replica=1)
    with pytest.raises(InvalidInput, match="at least one model tier"):
        route([], [TaskClass("x", 1, 0.5)])


CARDS = [(lookup("H100"), GpuHourPrices(machines=(MachinePrice(1, 3.0), MachinePrice(8, 20.0))))]
LONG = traffic(3000, 500, prompt_tokens=3500)


def serve_70b(asked: Assumptions) -> ServingOption:
    return options(model(70e9), CARDS, asked, [Precision.FP8])[0]


def arrivals(option: ServingOption, asked: Assumptions) -> ServingOption:
    return with_simulation(option, model(70e9), *CARDS[0], asked)


def test_prompts_take_their_part_of_the_gpus() -> None:
    """70B, 50 requests/s of 3,500 + 500 tokens: the prompts alone are 2 · 70e9 · 3,500 · 50 = 24.5 PFLOP/s, so that at
    half of the peak 25 H100 read prompts and nothing else."""
    short, long = serve_70b(traffic(3000, 500)), serve_70b(LONG)
    assert long.gpus * 1979e12 * 0.5 * long.prefill_share >= 24.5e15
    assert long.gpus > 2 * short.gpus
    cached = serve_70b(replace(LONG, prefix_cache=0.8))
    assert short.gpus < cached.gpus < long.gpus
    assert long.time_to_first_token_s > 4 * short.time_to_first_token_s


def test_machines_are_whole_and_one_more_is_priced() -> None:
    chosen = serve_70b(LONG)
    assert chosen.machines is not None
    assert chosen.gpus_per_machine == 8
    assert chosen.machines * 8 >= chosen.gpus
    assert chosen.monthly_usd_on_demand == pytest.approx(chosen.machines * 20 * 730)
    assert chosen.monthly_usd_one_more == pytest.approx((chosen.machines + 1) * 20 * 730)
    assert serve_70b(replace(LONG, spare_machines=1)).machines == chosen.machines + 1


def test_the_batch_is_what_the_memory_holds() -> None:
    speed = replica_speed(ServedModel(8e9, 8e9, LLAMA_8B, Precision.FP16, 3500, 500), lookup("H100"), 1)
    assert speed is not None
    free = lookup("H100").memory_gib * 0.9 * 2**30 - 16e9
    assert speed.batch <= free / (4000 * 131_072) < speed.batch + 10
    assert replica_speed(ServedModel(70e9, 70e9, LLAMA_8B, Precision.FP16, 0, 500), lookup("H100"), 1) is None


def test_two_cards_without_a_link_are_less_than_twice_as_fast() -> None:
    served = ServedModel(8e9, 8e9, LLAMA_8B, Precision.FP16, 0, 500)
    one, two = (replica_speed(served, lookup("RTX4090"), gpus, 4) for gpus in (1, 2))
    assert one is not None
    assert two is not None
    assert one.tokens_per_second < two.tokens_per_second < 1.9 * one.tokens_per_second


def test_cards_without_4_bit_kernels_do_not_serve_4_bits() -> None:
    found = options(model(7e9), [(lookup("V100"), GpuHourPrices())], EXAMPLE)
    assert {option.precision for option in found} == {Precision.FP16, Precision.INT8}


def test_simulated_latency_grows_with_the_load_and_repeats() -> None:
    chosen = serve_70b(LONG)
    seen = arrivals(chosen, LONG)
    assert seen == arrivals(chosen, LONG)
    assert seen.simulated_p95_s is not None
    assert seen.first_token_p95_s is not None
    assert seen.first_token_p95_s >= seen.time_to_first_token_s * 0.9
    assert seen.simulated_p95_s > 500 * 0.9 * 0.002
    fewer = arrivals(replace(chosen, replicas=chosen.replicas // 2), LONG)
    assert fewer.first_token_p95_s is not None
    assert fewer.first_token_p95_s > seen.first_token_p95_s


def test_replicas_are_added_until_the_simulated_p95_is_kept() -> None:
    chosen = serve_70b(LONG)
    slow = arrivals(chosen, LONG)
    assert slow.simulated_p95_s is not None
    limit = replace(LONG, p95_s=0.8 * slow.simulated_p95_s)
    kept = arrivals(chosen, limit)
    assert kept.meets_latency
    assert kept.replicas > chosen.replicas
    assert kept.monthly_usd_on_demand == pytest.approx((kept.machines or 0) * 20 * 730)
    fewer = arrivals(replace(chosen, replicas=kept.replicas - 1), replace(LONG, p95_s=None))  # fmt: skip
    assert (fewer.simulated_p95_s or 0) > (limit.p95_s or 0), "not one more than it takes"
    never = arrivals(chosen, replace(LONG, p95_s=0.01))
    assert (never.meets_latency, never.replicas) == (False, chosen.replicas)


def test_an_option_that_takes_more_replicas_may_no_longer_be_the_cheapest() -> None:
    dear, cheap = (
        replace(serve_70b(LONG), accelerator=name, simulated_p95_s=None, monthly_usd_on_demand=usd)
        for name, usd in (("B200", 1000.0), ("H100", 1200.0))
    )
    asked: list[str] = []

    def simulate(option: ServingOption) -> ServingOption:
        asked.append(option.accelerator)
        factor = 3 if option.accelerator == "B200" else 1
        return replace(option, simulated_p95_s=1.0, monthly_usd_on_demand=(option.monthly_usd_on_demand or 0) * factor)

    assert [one.accelerator for one in with_simulated_best((dear, cheap), simulate)] == ["H100", "B200"]
    assert asked == ["B200", "H100"]
    one_only = with_simulated_best((dear, cheap), simulate, limit=1)
    assert [one.accelerator for one in one_only] == ["B200", "H100"], "the other's p95 is not known"
    assert with_simulated_best((), simulate) == ()


def test_arrivals_one_at_a_time_are_a_known_queue() -> None:
    """With one sequence at once and no prompt this is M/D/1: mean wait ρ ÷ (2(1 − ρ)) services."""
    light = latencies(0.01, prompt_s=0, output_tokens=10, step_s=lambda _: 0.1, batch=1)
    assert light.answer_p50_s == pytest.approx(1.0)
    assert light.first_token_p50_s == pytest.approx(0.1)
    busy = latencies(0.9, prompt_s=0, output_tokens=10, step_s=lambda _: 0.1, batch=1, requests=20_000)
    assert 9 < busy.answer_p95_s < 18, "the 95th percentile of M/D/1 at 90 % is about 14 services"


def test_finished_runs_set_the_pace_of_their_model_and_card() -> None:
    """Runs at half of the estimate halve the speed there, lengthen its latencies, and leave other cards and sizes."""
    asked = traffic(600, headroom=0.0, p95_s=60, prompt_tokens=600, batch=32)
    cards = [(lookup(name), GpuHourPrices(on_demand=2.0)) for name in ("H100", "L40S")]

    def on_both(known: Assumptions, size: float = 8e9) -> dict[tuple[str, Precision], ServingOption]:
        found = options(model(size, LLAMA_8B), cards, known)
        return {(one.accelerator, one.precision): one for one in found}

    full = replica_speed(ServedModel(8e9, 8e9, LLAMA_8B, Precision.FP16, 600, 200), lookup("H100"), 1)
    assert full is not None
    half = replace(asked, measured_served=(("H100", 8e9, full.requests_per_second * 800 / 2, 0.25, 3),))
    before, after = on_both(asked), on_both(half)
    for precision in (Precision.FP16, Precision.FP8):
        one, other = before["H100", precision], after["H100", precision]
        assert other.tokens_per_second_per_replica == pytest.approx(one.tokens_per_second_per_replica / 2)
        assert other.time_per_token_s == pytest.approx(2 * one.time_per_token_s)
        assert "0.5 of the estimated speed, measured by 3 finished runs" in other.pace_text
        paced = with_simulation(other, model(8e9, LLAMA_8B), *cards[0], half)
        usual = with_simulation(one, model(8e9, LLAMA_8B), *cards[0], asked)
        assert (paced.simulated_p95_s or 0) > 1.5 * (usual.simulated_p95_s or 0)
        assert paced.measured_runs == 3
    assert after["L40S", Precision.FP16] == before["L40S", Precision.FP16]
    assert on_both(half, 9e9) == on_both(asked, 9e9)


def test_runs_that_did_not_say_what_they_generated_count_as_this_traffic() -> None:
    served = ServedModel(8e9, 8e9, LLAMA_8B, Precision.FP8, 600, 200)
    sixteen = replica_speed(replace(served, precision=Precision.FP16), lookup("H100"), 1)
    assert sixteen is not None
    runs = replace(DEFAULTS, measured_served=(("H100", 8e9, sixteen.requests_per_second * 800, None, 1),))
    paced, number = with_measured_pace(served, lookup("H100"), runs)
    assert paced.serving_pace == pytest.approx(1.0)
    assert number == 1
    with pytest.raises(InvalidInput, match="serving_pace"):
        replica_speed(served, lookup("H100"), 1, assumptions=replace(DEFAULTS, serving_pace=0.0))
