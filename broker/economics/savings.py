"""The savings ladder: steps in order, expected savings, conditions, and metrics.

Expected savings are ranges from practice, as shares of the workload's GPU cost. They are data (`SavingLever`),
replaceable as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.claims import SAVINGS_TOGETHER, RuleCheck
from broker.economics.units import fraction, parameter_count, share


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """A workload as its owner describes it. ``utilisation``: of the GPUs now; ``spare_hours_share``: share of the paid
    hours with nothing to do."""

    inference: bool
    parameters: float
    exact_output: bool = False
    quantised: bool = False
    full_fine_tuning: bool = False
    batched: bool = False
    interruptible: bool = False
    checkpointed: bool = False
    on_spot: bool = False
    steady_share: float = 0.0
    committed: bool = False
    autoscaled: bool = False
    utilisation: float = 1.0
    spare_hours_share: float = 0.0
    moves_data: bool = False

    def __post_init__(self) -> None:
        parameter_count(self.parameters)
        share("steady share", self.steady_share)
        share("utilisation", self.utilisation)
        share("spare hours", self.spare_hours_share)


@dataclass(frozen=True, slots=True)
class SavingLever:
    """A rung: ``saving`` low and high (0 to 1), under which condition, and what to measure after it. Rungs of one
    ``group`` are alternatives: only one of them counts."""

    name: str
    saving: tuple[float, float]
    condition: str
    measure: str
    group: str = ""


LADDER = (
    SavingLever(
        "smallest model that meets the bar", (0.3, 0.8), "quality bar defined", "quality on your own test set", "model"
    ),
    SavingLever(
        "INT8 quantisation",
        (0.3, 0.5),
        "inference, more than 3B parameters",
        "quality, tokens/s, p95 latency",
        "weights",
    ),
    SavingLever(
        "INT4 quantisation", (0.5, 0.8), "INT8 held its quality", "quality on the hardest tasks, tokens/s", "weights"
    ),
    SavingLever(
        "pruning", (0.1, 0.3), "structured pruning is supported by the runtime", "quality, tokens/s", "weights"
    ),
    SavingLever(
        "LoRA or QLoRA instead of full fine-tuning", (0.5, 0.9), "the task is an adaptation", "quality, GPU-hours"
    ),
    SavingLever(
        "distillation",
        (0.4, 0.8),
        "enough traffic to repay the training of a student",
        "quality gap to teacher",
        "model",
    ),
    SavingLever(
        "batching and caching", (0.2, 0.6), "latency budget leaves room; prompts repeat", "tokens/s, hit rate, p95"
    ),
    SavingLever(
        "pooling, MIG, MPS or time-slicing", (0.3, 0.5), "cards below 50 % busy", "GPU utilisation, p95 latency"
    ),
    SavingLever(
        "spot with checkpoints",
        (0.6, 0.9),
        "work can be interrupted",
        "interruptions, redone hours, cost per run",
        "purchase",
    ),
    SavingLever(
        "reserve the baseline",
        (0.3, 0.6),
        "steady demand for a year or more",
        "utilisation of the reservation",
        "purchase",
    ),
    SavingLever(
        "autoscale, scale to zero", (0.2, 0.6), "idle hours; a cold start of 30-120 s is bearable", "idle hours, p95"
    ),
    SavingLever("data loading", (0.05, 0.3), "GPUs wait for data", "GPU utilisation, time per step"),
    SavingLever("egress and storage", (0.02, 0.1), "data crosses regions or clouds", "egress and storage on the bill"),
)


@dataclass(frozen=True, slots=True)
class SavingAdvice:
    """One rung for one workload: whether it ``applies`` and why, and the range of what remains of today's cost if it
    and all applicable rungs before it are taken."""

    order: int
    name: str
    applies: bool
    why: str
    saving_low: float
    saving_high: float
    remaining_low: float
    remaining_high: float
    condition: str
    measure: str


def ladder(
    workload: WorkloadDescription, steps: Sequence[SavingLever] = LADDER, rules: Assumptions = DEFAULTS
) -> tuple[SavingAdvice, ...]:
    """The steps in order for this workload. Savings multiply: each applies to the rest, so the sum of percentages is
    never reached. Of alternatives the better one counts: low and high are the highest of theirs.
    """
    advice = []
    taken: dict[str, tuple[float, float]] = {}  # savings by group; a rung without one is its own
    names: dict[str, list[str]] = {}
    for order, step in enumerate(steps, start=1):
        low, high = step.saving
        applies, why = _applies(step.name, workload, rules)
        if applies:
            group = step.group or step.name
            before = taken.get(group, (0.0, 0.0))
            taken[group] = (max(before[0], low), max(before[1], high))
            if others := names.get(group):
                why = f"{why}; instead of {' or '.join(others)}"
            names.setdefault(group, []).append(step.name)
        remaining_low = math.prod(1 - most for _, most in taken.values())
        remaining_high = math.prod(1 - least for least, _ in taken.values())
        advice.append(
            SavingAdvice(
                order=order,
                name=step.name,
                applies=applies,
                why=why,
                saving_low=low if applies else 0.0,
                saving_high=high if applies else 0.0,
                remaining_low=remaining_low,
                remaining_high=remaining_high,
                condition=step.condition,
                measure=step.measure,
            )
        )
    return tuple(advice)


def _applies(name: str, w: WorkloadDescription, limits: Assumptions) -> tuple[bool, str]:
    """Whether a rung makes sense here, with the reason either way. A rung this table does not know applies."""
    free = not w.exact_output
    small = w.parameters <= limits.small_model
    quantise = w.inference and free and not w.quantised and not small
    unquantised = (
        ("training keeps its precision", not w.inference),
        ("the output must be exact", w.exact_output),
        ("quantised already", w.quantised),
        (f"models up to {limits.small_model / 1e9:g}B gain little from it", small),
    )
    no_quantising = next((why for why, holds in unquantised if holds), "")
    busy = f"the cards are {w.utilisation:.0%} busy"
    rungs = {  # name: does it apply, why, why not
        "smallest model that meets the bar": (
            free,
            "it multiplies with every other saving",
            "the output must be exact",
        ),
        "INT8 quantisation": (quantise, "weights shrink 4 times against FP32", no_quantising),
        "INT4 quantisation": (quantise, "weights shrink 8 times against FP32", no_quantising),
        "pruning": (w.inference and free, "removes weights that do not matter", "only for inference that may differ"),
        "LoRA or QLoRA instead of full fine-tuning": (
            w.full_fine_tuning,
            "gradients and optimizer shrink to the adapter",
            "no full fine-tuning here",
        ),
        "distillation": (
            w.inference and free and not small,
            "a student serves for a fraction",
            "only for inference that may differ, with more than 3B parameters",
        ),
        "batching and caching": (
            w.inference and not w.batched,
            "decoding is bound by bandwidth: a batch shares each read of the weights",
            "batched already" if w.batched else "training batches by itself",
        ),
        "pooling, MIG, MPS or time-slicing": (w.utilisation < limits.pool_below_utilization, busy, busy),
        "spot with checkpoints": (
            w.interruptible and not w.on_spot,
            "interruptions cost only redone work" if w.checkpointed else "write checkpoints first, then take spot",
            "on spot already" if w.on_spot else "it must not be interrupted",
        ),
        "reserve the baseline": (
            w.steady_share > limits.reserve_above_steady_share and not w.committed,
            f"{w.steady_share:.0%} of the demand is steady",
            "committed already" if w.committed else f"only {w.steady_share:.0%} of the demand is steady",
        ),
        "autoscale, scale to zero": (
            w.inference and not w.autoscaled and w.spare_hours_share > limits.scale_above_spare_hours,
            f"{w.spare_hours_share:.0%} of the paid hours have nothing to do",
            "scales already" if w.autoscaled else "few idle hours, or not a service",
        ),
        "data loading": (
            not w.inference and w.utilisation < limits.load_data_below_utilization,
            busy,
            "the cards are not waiting for data",
        ),
        "egress and storage": (w.moves_data, "data crosses regions or clouds", "data stays where it is"),
    }
    applies, why, why_not = rungs.get(name, (True, "always worth checking", ""))
    return applies, why if applies else why_not


def check_together(advice: Sequence[SavingAdvice], rules: Assumptions = DEFAULTS) -> RuleCheck:
    """Compares the quoted sum of all inference measures (30-40 %) with the combined effect of the applicable steps.

    They rarely all succeed, so the quoted figure holds if the combined effect can reach it.
    """
    low, high = SAVINGS_TOGETHER
    least, most = 1 - advice[-1].remaining_high, 1 - advice[-1].remaining_low
    return RuleCheck(
        rule=f"together the measures save {low:.0%}-{high:.0%} of inference",
        says=f"if every applicable step succeeded: {least:.0%}-{most:.0%}; they rarely all do",
        holds=most >= low,
    )


def fewer_gpus(utilisation_before: float, utilisation_after: float) -> float:
    """The share of GPUs no longer needed when utilisation rises: 1 − before ÷ after. Negative when it falls."""
    return 1 - fraction("utilisation before", utilisation_before) / fraction("utilisation after", utilisation_after)


def check_fleet_claim(quoted: float, utilisation_before: float, utilisation_after: float) -> RuleCheck:
    """Compares a claim about GPUs saved by higher utilisation with the arithmetic; it holds within two percentage
    points."""
    saved = fewer_gpus(utilisation_before, utilisation_after)
    return RuleCheck(
        rule=f"{utilisation_before:.0%} to {utilisation_after:.0%} utilisation saves {quoted:.0%} of the GPUs",
        says=f"it saves {saved:.0%}",
        holds=abs(saved - quoted) <= 0.02,
    )
