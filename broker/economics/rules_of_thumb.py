"""Commonly quoted rules of thumb, each with its arithmetic: whether it holds, and the computed figure.

Every figure that a rule is compared with is computed here from `core/market/gpus.toml`, the rules of thumb in force
and, where they are known, current prices. Amounts USD; memory GiB or GB as said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS, Assumptions, override
from broker.economics.buy_or_rent import compare, server
from broker.economics.families import shape_for
from broker.economics.figures import API_BREAK_EVEN, FLEET_SAVING, SAVINGS_TOGETHER, WITHIN, RuleCheck, number_text
from broker.economics.kinds import Method, Precision
from broker.economics.memory import ModelUse, Subject, estimate, kv_cache_bytes
from broker.economics.replica import ServedModel, replica_speed
from broker.economics.savings import check_fleet_claim
from broker.economics.throughput import decode, decode_tokens_per_second
from broker.economics.unit_cost import (
    break_even_utilization,
    check_quoted_utilization,
    cluster_cost,
)
from broker.economics.units import GB, GIB

_NEARLY = 1.1  # old prices do not distinguish break-evens that differ by less than a tenth
_REQUEST = (300.0, 300.0)  # example of tokens read and generated; the API's price counts for generated ones
API_USD_PER_MILLION = 0.20  # example price of a small model; `--assume api_usd` takes your own


@dataclass(frozen=True, slots=True)
class QuotedRule:
    """A quoted rule: its ``topic``; the computed figures, whether it ``holds`` for them (None: it cannot be judged
    without prices), where it fails, and the ``command`` that computes it for your own figures."""

    topic: str
    rule: str
    says: str
    holds: bool | None
    fails: str
    command: str


@dataclass(frozen=True, slots=True)
class MarketFigures:
    """Current prices that the rules are compared with. ``on_demand``: USD per hour of one card, by name. ``spot`` and
    ``reserved``: price over on-demand of the same machine at the same place, one for each pair known."""

    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot: tuple[float, ...] = ()
    reserved: tuple[float, ...] = ()


def quoted_rules(market: MarketFigures | None = None, assumptions: Assumptions = DEFAULTS) -> tuple[QuotedRule, ...]:
    """All quoted rules, by topic."""
    market = market or MarketFigures()
    return (
        *_memory(assumptions),
        *_speed(assumptions),
        *_owning(market, assumptions),
        *_discounts(market),
        *_savings(assumptions),
    )


def _memory(assumptions: Assumptions) -> Iterator[QuotedRule]:
    states = Precision.BF16.bytes + assumptions.gradient_bytes + assumptions.adamw_bytes
    long = estimate(ModelUse(7e9, Method.ADAMW, batch=1, context=4096), assumptions=assumptions)
    yield QuotedRule(
        "memory", "full fine-tuning takes 16 to 18 bytes a parameter",
        f"weights, gradients and optimizer are {states:g} bytes a parameter; 7B at 4,096 tokens takes "
        f"{long.total_gib * GIB / 7e9:.0f} with what depends on batch and context",
        abs(states - 18) <= 2, "activations and logits are left out; LoRA and 8-bit optimizers take less",
        "gpubroker advise size 7B --context 4096",
    )  # fmt: skip
    by_rule = assumptions.activations_per_weight * 7e9 * 2 / GIB
    many = estimate(ModelUse(7e9, Method.ADAMW, batch=8, context=4096), assumptions=assumptions)
    counted = many.activations_gib + many.loss_gib
    yield QuotedRule(
        "memory", f"activations take {assumptions.activations_per_weight:g} times the weights",
        f"7B: {by_rule:.0f} GiB by the rule; {counted:.0f} GiB for 8 × 4,096 tokens, "
        f"{long.activations_gib + long.loss_gib:.0f} GiB for 1 × 4,096",
        abs(counted / by_rule - 1) <= WITHIN, "they grow with batch and context, not with the weights",
        "gpubroker advise size 7B --batch 8 --context 4096",
    )  # fmt: skip
    shape, _ = shape_for(70e9)
    cache = kv_cache_bytes(shape, 32, 8192) / GB
    with_all_heads = cache * shape.heads / shape.kv_heads
    yield QuotedRule(
        "memory", "the KV cache is batch × context × 2 × layers × hidden size × bytes",
        f"70B, 32 × 8,192 tokens: {with_all_heads:,.0f} GB by the rule, {cache:.1f} GB with its {shape.kv_heads} "
        "key-value "
        f"heads of {shape.heads}",
        False, f"{shape.heads / shape.kv_heads:g} times too much for grouped-query attention",
        "gpubroker advise size 70B --method inference --batch 32 --context 8192",
    )  # fmt: skip


def _speed(assumptions: Assumptions) -> Iterator[QuotedRule]:
    old, new = lookup("A100-80GB"), lookup("H100")
    compute = (new.tflops_bf16 or 0) / (old.tflops_bf16 or 1)
    memory = new.bandwidth_gb_s / old.bandwidth_gb_s
    yield QuotedRule(
        "speed", "an H100 is 3 times an A100",
        f"{compute:.1f} times in dense BF16 ({new.tflops_bf16:g} over {old.tflops_bf16:g} TFLOPS), {memory:.1f} times "
        "in memory bandwidth",
        abs(compute - 3) <= 1 and abs(memory - 3) <= 1, "token generation at small batch is bound by bandwidth",
        "gpubroker advise speed 7B",
    )  # fmt: skip
    link = (new.link_gb_s or 0) / 2 / assumptions.pcie_gb_s
    yield QuotedRule(
        "speed", f"an all-reduce over PCIe is {assumptions.pcie_allreduce_slowdown:g} times slower than over NVLink",
        f"H100: {(new.link_gb_s or 0) / 2:g} over {assumptions.pcie_gb_s:g} GB/s one way: {link:.0f} times; A100: "
        f"{(old.link_gb_s or 0) / 2 / assumptions.pcie_gb_s:.0f} times",
        10 <= link <= 20, "small messages are bound by latency", "gpubroker advise size 70B --gpu H100",
    )  # fmt: skip
    big, small = lookup("A100-80GB"), lookup("L4")
    full = replace(assumptions, precision=Precision.FP32)
    before = decode(big, Subject(7e9, 7e9), 1, full).tokens_per_second or 1.0
    after = decode_tokens_per_second(3.5e9, small.bandwidth_gb_s, efficiency=assumptions.decode_efficiency)
    yield QuotedRule(
        "speed", "7B in FP32 on an A100 at $3.50/h to INT4 on an L4 at $0.70/h is 5 times cheaper",
        f"5 times an hour; {before:.0f} tokens/s become {after:.0f}: {3.5 / before / (0.7 / after):.1f} times a token",
        True, "at a large batch the A100 shares each reading of the weights among more requests",
        "gpubroker advise cost unit 60 --assume rent_usd_per_hour=0.70",
    )  # fmt: skip


def _owning(market: MarketFigures, assumptions: Assumptions) -> Iterator[QuotedRule]:
    (check,) = cluster_cost(300e3, assumptions).rules_of_thumb
    yield _rule_of("owning", check, "staff is most of it, and the cost of a used hour falls with utilization",
                   "gpubroker advise cost cluster 300000")  # fmt: skip
    limit = assumptions.buy_above_hours_per_day
    for name, case, command in _purchases(market, assumptions):
        break_even = compare(case, vary=False).break_even
        hours_per_day = None if break_even is None else break_even.hours_per_day
        says = (
            "owning never pays"
            if hours_per_day is None or hours_per_day > 24
            else f"owning pays above {hours_per_day:.1f} h/day"
        )
        yield QuotedRule(
            "owning", f"above {limit:g} h/day for years: buy ({name})",
            f"${case.purchase_usd:,.0f} against ${case.rent_usd_per_hour:.2f}/h for {case.years:g} years: {says}",
            hours_per_day is not None and hours_per_day <= _NEARLY * limit,
            "the rent decides, not the hours; staff comes on top", command,
        )  # fmt: skip
    for model, share in API_BREAK_EVEN:
        card, size = ("RTX4090", 7e9) if "7B" in model else ("A100-80GB", 13e9)
        single_speed = decode(lookup(card), Subject(size, size), 1, assumptions).tokens_per_second
        served = ServedModel(size, size, shape_for(size)[0], Precision.FP16, *_REQUEST)
        full = replica_speed(served, lookup(card), 1, assumptions=assumptions)
        speed = None if full is None else full.tokens_per_second
        rent = market.on_demand.get(card)
        command = f"gpubroker advise cost unit {speed or 0:.0f} --gpu {card} --assume api_usd=0.20"
        if rent is None or speed is None or full is None:
            yield QuotedRule("owning", f"{model} needs about {share:.0%} utilization to beat an API",
                             f"no price of {card} is known", None, "", command)  # fmt: skip
            continue
        check = check_quoted_utilization(model, share, rent, speed, API_USD_PER_MILLION)
        single_break_even = break_even_utilization(rent, single_speed or 1.0, API_USD_PER_MILLION)
        when_text = "never" if single_break_even > 1 else f"above {single_break_even:.0%}"
        says = (
            f"{check.says}, {full.batch} requests at once; {when_text} with one at a time "
            f"({number_text(single_speed or 0)} tokens/s)"
        )
        reason = "it depends on the API's price, the card and how many requests share it, not on the size"
        yield _rule_of("owning", replace(check, says=says), reason, command)


def _purchases(market: MarketFigures, assumptions: Assumptions) -> Iterator[tuple[str, Assumptions, str]]:
    """Cards with a street price and a rent, and the build that is often quoted, each with its command."""
    single_card = replace(assumptions, gpus=1, gpus_per_machine=1, hours_per_day=None)
    for card in ("RTX4090", "L40S", "A100-80GB", "H100"):
        (price, watts), rent = server(lookup(card), 1, assumptions), market.on_demand.get(card)
        if price is None or rent is None:
            continue
        case = replace(single_card, purchase_usd=price, rent_usd_per_hour=rent, watts=watts)
        no_overheads = "--assume staff_usd_per_gpu_hour=0 --assume facility_usd=0"
        yield f"{card} at its current rent", case, f"gpubroker advise buy-or-rent --gpu {card} {no_overheads}"
    build = {"purchase_usd": 2200, "rent_usd_per_hour": 0.18, "watts": 550, "kwh_usd": 0.16, "pue": 1.0,
             "resale_share": 600 / 2200, "lead_time_weeks": 0}  # fmt: skip
    options = " ".join(f"--assume {name}={value:.4g}" for name, value in build.items())
    yield (
        "an RTX 4090 build of $2,200, sold for $600",
        override({"years": 2, **build}, base=single_card),
        f"gpubroker advise buy-or-rent --years 2 --hours-per-day 6 {options}",
    )


def _discounts(market: MarketFigures) -> Iterator[QuotedRule]:
    for topic, claim, ratios, fails in (
        ("spot", (0.60, 0.90), market.spot, "it varies by place and week, and interrupted work is repeated"),
        ("reserved", (0.30, 0.60), market.reserved, "it is paid for idle hours, too"),
    ):
        low, high = claim
        discounts = sorted(1 - ratio for ratio in ratios)
        within_range = sum(low <= round(discount, 2) <= high for discount in discounts)  # rounded as shown
        yield QuotedRule(
            "prices", f"{topic} capacity costs {low:.0%}-{high:.0%} less than on demand",
            f"of {len(discounts)} machines with both prices the median is {median(discounts):.0%} less, "
            f"{within_range} within the range"
            if discounts else "no machine with both prices is known",
            (low <= round(median(discounts), 2) <= high) if discounts else None, fails, "gpubroker offers --gpu H100:8",
        )  # fmt: skip
    yield QuotedRule(
        "prices", "a reservation at 40 % off saves 40 %",
        "at 40 % off it saves 40 % of hours in use all the time, 14 % at 70 % use, and costs 20 % more at 50 % use",
        False, "it pays above a use of 1 − discount, and never saves the whole discount below full use",
        "gpubroker advise buy-or-rent --gpu H100 --hours-per-day 12",
    )  # fmt: skip


def _savings(assumptions: Assumptions) -> Iterator[QuotedRule]:
    share, before, after = FLEET_SAVING
    yield _rule_of("savings", check_fleet_claim(share, before, after), "1 − before ÷ after, not more",
                   "gpubroker advise savings --utilization 0.2 --assume training_utilization=0.6")  # fmt: skip
    low, high = SAVINGS_TOGETHER
    combined = 1 - (1 - low) * (1 - high)
    yield QuotedRule(
        "savings", "savings of several measures add up",
        f"{low:.0%} and {high:.0%} together save {combined:.0%}, not {low + high:.0%}; INT8 and INT4 are alternatives",
        False, "each applies to what the others leave, and of alternatives one counts",
        "gpubroker advise savings 7B --method inference --monthly-usd 12000",
    )  # fmt: skip
    size = 70e9 * (2 + assumptions.adamw_bytes)
    single_seconds, gang_seconds = (
        size / assumptions.checkpoint_bytes_per_s,
        size / assumptions.checkpoint_bytes_per_s / 32,
    )
    yield QuotedRule(
        "savings", "write a checkpoint every ten minutes",
        f"70B with its optimizer is {size / GB:,.0f} GB: {single_seconds / 60:.0f} min by one writer, "
        f"{gang_seconds:.0f} s by 32",
        False, "the best interval is √(2 × time to write × time between failures); `plan` computes it",
        "gpubroker plan JOB.yaml --explain",
    )  # fmt: skip


def _rule_of(topic: str, check: RuleCheck, fails: str, command: str) -> QuotedRule:
    return QuotedRule(topic, check.rule, check.says, check.holds, fails, command)
