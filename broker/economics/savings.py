"""The savings ladder: steps in order, expected savings, conditions, and what to measure afterwards.

Expected savings are ranges from practice, as shares of the GPU cost before each step.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import SAVINGS_TOGETHER, RuleCheck, Share
from broker.economics.kinds import Fact, Method

DEFAULT_UTILIZATION = 0.5
"""Default GPU utilization."""


@dataclass(frozen=True, slots=True)
class SavingAdvice:
    """One step: whether it ``applies`` and why, and the range of what remains of today's cost if it and all applicable
    steps before it are taken."""

    order: int
    name: str
    applies: bool
    saving_low: Share
    saving_high: Share
    remaining_low: Share
    remaining_high: Share
    why: str
    measure: str
    condition: str


@dataclass(frozen=True, slots=True)
class _Step:
    """``saves``: low and high (0 to 1), under which ``condition``, and what to measure afterwards. It ``applies``
    because of ``why``, or does not because of ``why_not``. Steps of one ``group`` are alternatives."""

    name: str
    saves: tuple[float, float]
    condition: str
    measure: str
    applies: bool
    why: str
    why_not: str = ""
    group: str = ""


def ladder(
    parameters: float,
    method: Method | None = None,
    facts: Collection[Fact] = (),
    assumptions: Assumptions = DEFAULTS,
) -> tuple[SavingAdvice, ...]:
    """The steps in order for this work; ``method``: None for a training of which nothing more is known.

    Savings multiply: each applies to the rest, so the sum of percentages is never reached. Of alternatives the better
    one counts: low and high are the highest of theirs.
    """
    advice = []
    savings_by_group: dict[str, tuple[float, float]] = {}  # savings by group; a step without one is its own
    names: dict[str, list[str]] = {}
    for order, step in enumerate(_steps(parameters, method, facts, assumptions), start=1):
        (low, high), reason = step.saves, step.why if step.applies else step.why_not
        if step.applies:
            group = step.group or step.name
            previous = savings_by_group.get(group, (0.0, 0.0))
            savings_by_group[group] = (max(previous[0], low), max(previous[1], high))
            if alternatives := names.get(group):
                reason = f"{reason}; instead of {' or '.join(alternatives)}"
            names.setdefault(group, []).append(step.name)
        advice.append(
            SavingAdvice(
                order=order,
                name=step.name,
                applies=step.applies,
                saving_low=low if step.applies else 0.0,
                saving_high=high if step.applies else 0.0,
                remaining_low=math.prod(1 - best for _, best in savings_by_group.values()),
                remaining_high=math.prod(1 - worst for worst, _ in savings_by_group.values()),
                why=reason,
                measure=step.measure,
                condition=step.condition,
            )
        )
    return tuple(advice)


def _steps(
    parameters: float, method: Method | None, facts: Collection[Fact], assumptions: Assumptions
) -> Iterator[_Step]:
    inference, free = method is Method.INFERENCE, Fact.EXACT_OUTPUT not in facts
    small = parameters <= assumptions.small_model
    utilization = assumptions.gpu_utilization or DEFAULT_UTILIZATION
    is_assumed = assumptions.gpu_utilization is None
    busy = f"the GPUs are {'taken to be ' if is_assumed else ''}{utilization:.0%} busy"
    steady = f"{assumptions.steady_share:.0%} of the demand is steady"
    few_steady = f"only {steady}" if assumptions.steady_share else "not said how much of the demand is steady"
    few_idle = "few idle hours" if assumptions.spare_hours_share else "not said how many paid hours are idle"
    inexact_only = "only for inference that may differ"
    no_quantization = next(
        (
            reason
            for reason, applies in (
                ("training keeps its precision", not inference),
                ("the output must be exact", not free),
                ("quantized already", Fact.QUANTIZED in facts),
                (f"models up to {assumptions.small_model / 1e9:g}B gain little from it", small),
            )
            if applies
        ),
        "",
    )
    yield _Step(
        "smallest model that meets the bar", (0.3, 0.8), "quality bar defined", "quality on your own test set",
        free, "it multiplies with every other saving", "the output must be exact", "model",
    )  # fmt: skip
    yield _Step(
        "INT8 quantization", (0.3, 0.5), "inference, more than 3B parameters", "quality, tokens/s, p95 latency",
        not no_quantization, "weights shrink 4 times against FP32", no_quantization, "weights",
    )  # fmt: skip
    yield _Step(
        "INT4 quantization", (0.5, 0.8), "INT8 held its quality", "quality on the hardest tasks, tokens/s",
        not no_quantization, "weights shrink 8 times against FP32", no_quantization, "weights",
    )  # fmt: skip
    yield _Step(
        "pruning", (0.1, 0.3), "structured pruning is supported by the runtime", "quality, tokens/s",
        inference and free, "removes weights that do not matter", inexact_only, "weights",
    )  # fmt: skip
    yield _Step(
        "LoRA or QLoRA instead of full fine-tuning", (0.5, 0.9), "the task is an adaptation", "quality, GPU-hours",
        method in (Method.ADAMW, Method.SGD), "gradients and optimizer shrink to the adapter",
        "no full fine-tuning here",
    )  # fmt: skip
    yield _Step(
        "distillation", (0.4, 0.8), "enough traffic to repay the training of a student", "quality gap to teacher",
        inference and free and not small, "a student serves for a fraction",
        f"{inexact_only}, with more than 3B parameters", "model",
    )  # fmt: skip
    yield _Step(
        "batching and caching", (0.2, 0.6), "latency budget leaves room; prompts repeat", "tokens/s, hit rate, p95",
        inference and Fact.BATCHED not in facts,
        "decoding is bound by bandwidth: a batch shares each read of the weights",
        "batched already" if Fact.BATCHED in facts else "training batches by itself",
    )  # fmt: skip
    yield _Step(
        "pooling, MIG, MPS or time-slicing", (0.3, 0.5), "GPUs below 50 % busy", "GPU utilization, p95 latency",
        utilization < assumptions.pool_below_utilization, busy, busy,
    )  # fmt: skip
    yield _Step(
        "spot with checkpoints", (0.6, 0.9), "work can be interrupted", "interruptions, redone hours, cost per run",
        Fact.INTERRUPTIBLE in facts and Fact.ON_SPOT not in facts,
        "interruptions cost only redone work" if Fact.CHECKPOINTED in facts
        else "write checkpoints first, then take spot",
        "on spot already" if Fact.ON_SPOT in facts else "not said to be interruptible", "purchase",
    )  # fmt: skip
    yield _Step(
        "reserve the baseline", (0.3, 0.6), "steady demand for a year or more", "utilization of the reservation",
        assumptions.steady_share > assumptions.reserve_above_steady_share and Fact.COMMITTED not in facts,
        steady, "committed already" if Fact.COMMITTED in facts else few_steady, "purchase",
    )  # fmt: skip
    yield _Step(
        "autoscale, scale to zero", (0.2, 0.6), "idle hours; a cold start of 30-120 s is bearable", "idle hours, p95",
        inference and Fact.AUTOSCALED not in facts
        and assumptions.spare_hours_share > assumptions.scale_above_spare_hours,
        f"{assumptions.spare_hours_share:.0%} of the paid hours have nothing to do",
        "scales already" if Fact.AUTOSCALED in facts else few_idle if inference else "not a service",
    )  # fmt: skip
    yield _Step(
        "data loading", (0.05, 0.3), "GPUs wait for data", "GPU utilization, time per step",
        not inference and utilization < assumptions.load_data_below_utilization, busy,
        "a service does not wait for data" if inference else busy,
    )  # fmt: skip
    yield _Step(
        "egress and storage", (0.02, 0.1), "data crosses regions or clouds", "egress and storage on the bill",
        Fact.MOVES_DATA in facts, "data crosses regions or clouds", "data stays where it is",
    )  # fmt: skip


def check_combined_saving(advice: tuple[SavingAdvice, ...]) -> RuleCheck:
    """Compares the quoted sum of all inference measures (30-40 %) with the combined effect of the applicable steps.

    They rarely all succeed, so the quoted figure holds if the combined effect can reach it.
    """
    low, high = SAVINGS_TOGETHER
    low_saving, high_saving = 1 - advice[-1].remaining_high, 1 - advice[-1].remaining_low
    return RuleCheck(
        rule=f"together the measures save {low:.0%}-{high:.0%} of inference",
        says=f"if every applicable step succeeded: {low_saving:.0%}-{high_saving:.0%}; they rarely all do",
        holds=high_saving >= low,
    )


def fewer_gpus(utilization_before: float, utilization_after: float) -> float:
    """The share of GPUs no longer needed when utilization rises: 1 − before ÷ after. Negative when it falls."""
    return 1 - utilization_before / utilization_after


def check_fleet_claim(quoted: float, utilization_before: float, utilization_after: float) -> RuleCheck:
    """Compares a claim about GPUs saved by higher utilization with the arithmetic; it holds within two percentage
    points."""
    saved = fewer_gpus(utilization_before, utilization_after)
    return RuleCheck(
        rule=f"{utilization_before:.0%} to {utilization_after:.0%} utilization saves {quoted:.0%} of the GPUs",
        says=f"it saves {saved:.0%}",
        holds=abs(saved - quoted) <= 0.02,
    )
