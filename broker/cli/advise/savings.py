"""`gpubroker advise savings`: savings in order, their expected effect, and what to measure afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.cost_advice import SavingsAdvice
    from broker.economics.claims import RuleCheck

EXAMPLES = examples(
    "gpubroker advise savings --inference --parameters 7B --utilisation 0.2 --spare-hours 0.4 --monthly-usd 12000",
    "gpubroker advise savings --parameters 7B --full-fine-tuning --interruptible --checkpointed --utilisation 0.5",
    "gpubroker advise savings --inference --parameters 70B --exact-output --steady 0.6 --json",
)


@dataclass(frozen=True)
class SavingsOptions:
    """The options of `savings`."""

    parameters: Annotated[
        float, typer.Option(parser=inputs.count, metavar="COUNT", help="Number of model parameters.")
    ] = 7e9
    inference: Annotated[bool, typer.Option("--inference", help="Inference, not training.")] = False
    exact_output: Annotated[bool, typer.Option("--exact-output", help="The output must not change.")] = False
    quantised: Annotated[bool, typer.Option("--quantised", help="Weights are already quantised.")] = False
    full_fine_tuning: Annotated[bool, typer.Option("--full-fine-tuning", help="All weights are trained.")] = False
    batched: Annotated[bool, typer.Option("--batched", help="Requests are already batched and cached.")] = False
    interruptible: Annotated[bool, typer.Option("--interruptible", help="The work can be interrupted and resumed.")] = (
        False
    )
    checkpointed: Annotated[bool, typer.Option("--checkpointed", help="The work writes checkpoints.")] = False
    on_spot: Annotated[bool, typer.Option("--on-spot", help="Already runs on spot.")] = False
    steady_share: Annotated[float, typer.Option("--steady", help="Share of demand that is steady.")] = 0.0
    committed: Annotated[bool, typer.Option("--committed", help="The baseline is already reserved or owned.")] = False
    autoscaled: Annotated[bool, typer.Option("--autoscaled", help="Already scales with its load.")] = False
    utilisation: Annotated[float, typer.Option(help="Present GPU utilisation.")] = 0.5
    target: Annotated[
        float | None, typer.Option("--target-utilisation", help="Default: 0.7 in training, 0.5 in inference.")
    ] = None
    spare_hours_share: Annotated[float, typer.Option("--spare-hours", help="Share of paid hours without work.")] = 0.0
    moves_data: Annotated[bool, typer.Option("--moves-data", help="Data crosses regions or clouds.")] = False
    monthly_usd: Annotated[float | None, inputs.usd("Present monthly cost.")] = None


@gathered
def savings(context: typer.Context, given: SavingsOptions, as_json: AsJson = False) -> None:
    """List savings in order, each with its expected effect, its condition, and what to measure afterwards.

    Savings multiply: each step applies to the cost that the earlier steps leave.
    """
    from broker.app.results.cost_advice import SavingsAdvice
    from broker.economics import savings as economics
    from broker.economics.claims import FLEET_SAVING
    from broker.economics.units import fraction, positive

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    workload = applied(economics.WorkloadDescription, given)
    if given.monthly_usd is not None:
        positive("--monthly-usd", given.monthly_usd, "USD")
    goal = given.target or (thumb.inference_utilization if given.inference else thumb.training_utilization)
    now = fraction("utilisation", given.utilisation)
    fewer = max(0.0, economics.fewer_gpus(now, fraction("target utilisation", goal)))
    advice = economics.ladder(workload, rules=thumb)
    rules: list[RuleCheck] = [economics.check_together(advice, thumb)] if given.inference else []
    rules.append(economics.check_fleet_claim(*FLEET_SAVING))
    notes = [
        f"a model of {given.parameters / 1e9:g}B parameters, present GPU utilisation {given.utilisation:.0%}",
        "expected savings are ranges from practice, relative to the GPU cost before each step",
    ]
    told = {"utilisation": now, "fewer_gpus_share": fewer, "target_utilisation": goal, "rules_of_thumb": rules}
    found = SavingsAdvice.of_steps(advice, given.monthly_usd, **told, assumptions=notes)
    terminal.result(found, lambda: _screen(terminal.out, found))


def _screen(console: Console, found: SavingsAdvice) -> Iterator[RenderableType]:
    from rich.text import Text

    from broker.app.results.cost_advice import SavingStep
    from broker.cli.advise import view
    from broker.cli.render.tables import ValueColumn, hanging, listed

    def left(one: SavingStep) -> str:
        if one.remaining_low_usd is None:
            return f"{one.remaining_low:.0%}-{one.remaining_high:.0%}"
        return f"{view.estimate(one.remaining_low_usd)}-{view.estimate(one.remaining_high_usd)}"

    columns: tuple[ValueColumn[SavingStep], ...] = (
        ValueColumn("#", lambda one: str(one.order), align="right"),
        ValueColumn("step", lambda one: one.name),
        ValueColumn("saves", lambda one: f"{one.saving_low:.0%}-{one.saving_high:.0%}", align="right"),
        ValueColumn("remaining", left, align="right"),
        ValueColumn("why", lambda one: one.why, 2),
        ValueColumn("condition", lambda one: one.condition, 4),
        ValueColumn("measure afterwards", lambda one: one.measure, 3),
    )
    applies = [one for one in found.steps if one.applies]
    yield view.heading("In this order", f": {len(applies)} of {len(found.steps)} steps apply")
    yield from listed(console, columns, applies)
    if fewer := found.fewer_gpus_share:
        use = f"At {found.target_utilisation:.0%} instead of {found.utilisation:.0%} utilisation"
        yield Text(f"{use}, the same work needs {fewer:.0%} fewer GPUs.")
    if skipped := [f"{one.name} ({one.why})" for one in found.steps if not one.applies]:
        yield view.heading("Not applicable")
        yield hanging(Text("; ".join(skipped)), 2)
    yield from view.rules(found.rules_of_thumb)
    yield from view.assumptions(found.assumptions)
