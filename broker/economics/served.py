"""The measured speed of finished runs of inference as a multiple of the estimate."""

from __future__ import annotations

from dataclasses import replace

from broker.core.values.accelerators import Accelerator
from broker.economics.memory import Precision
from broker.economics.replica import ServedModel, replica_speed
from broker.economics.rules import RulesOfThumb


def at_measured_pace(model: ServedModel, card: Accelerator, rules: RulesOfThumb) -> tuple[RulesOfThumb, int]:
    """The rules with the `RulesOfThumb.serving_pace` at which finished runs of a model of this size worked on the card,
    and the number of those runs; the rules as they are and 0 without any.

    The pace is their tokens per second of a GPU over the estimate for 16-bit weights (or the model's, where those fit
    on no machine) and as many sequences as fit, at their own share of generated tokens, where they reported it, else at
    that of ``model``. Runs without enough requests make the pace too low.
    """
    measured = rules.served_on(card.name, model.parameters)
    if measured is None:
        return rules, 0
    speed, generated, runs = measured
    as_run = model
    if generated is not None:
        prompts = model.output_tokens * (1 / generated - 1)
        as_run = replace(model, prompt_tokens=prompts, cached_share=0.0)
    for precision in (Precision.FP16, model.precision):
        gpus = 1
        while gpus <= rules.gpus_per_node:
            found = replica_speed(replace(as_run, precision=precision), card, gpus, rules=rules)
            if found is not None:
                estimated = found.requests_per_second * (as_run.prompt_tokens + as_run.output_tokens) / gpus
                return replace(rules, serving_pace=rules.serving_pace * speed / estimated), runs
            gpus *= 2
    return rules, 0
