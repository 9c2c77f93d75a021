"""`gpubroker advise savings`: savings in order, their expected effect, and what to measure afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.economics.rules import RuleCheck
    from broker.economics.savings import SavingAdvice

EXAMPLES = examples(
    "gpubroker advise savings --inference --parameters 7B --utilisation 0.2 --spare-hours 0.4 --monthly-usd 12000",
    "gpubroker advise savings --parameters 7B --full-fine-tuning --interruptible --checkpointed --utilisation 0.5",
    "gpubroker advise savings --inference --parameters 70B --exact-output --steady 0.6 --json",
)


def savings(
    context: typer.Context,
    parameters: Annotated[
        float,
        typer.Option("--parameters", parser=inputs.count, metavar="COUNT", help="Number of model parameters."),
    ] = 7e9,
    inference: Annotated[bool, typer.Option("--inference", help="Inference, not training.")] = False,
    exact: Annotated[bool, typer.Option("--exact-output", help="The output must not change.")] = False,
    quantised: Annotated[bool, typer.Option("--quantised", help="Weights are already quantised.")] = False,
    full: Annotated[bool, typer.Option("--full-fine-tuning", help="All weights are trained.")] = False,
    batched: Annotated[bool, typer.Option("--batched", help="Requests are already batched and cached.")] = False,
    interruptible: Annotated[
        bool, typer.Option("--interruptible", help="The work can be interrupted and resumed.")
    ] = False,
    checkpointed: Annotated[bool, typer.Option("--checkpointed", help="The work writes checkpoints.")] = False,
    on_spot: Annotated[bool, typer.Option("--on-spot", help="Already runs on spot.")] = False,
    steady: Annotated[float, typer.Option("--steady", help="Share of demand that is steady.")] = 0.0,
    committed: Annotated[bool, typer.Option("--committed", help="The baseline is already reserved or owned.")] = False,
    autoscaled: Annotated[bool, typer.Option("--autoscaled", help="Already scales with its load.")] = False,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Present GPU utilisation.")] = 0.5,
    target: Annotated[
        float | None, typer.Option("--target-utilisation", help="Default: 0.7 in training, 0.5 in inference.")
    ] = None,
    spare: Annotated[float, typer.Option("--spare-hours", help="Share of paid hours without work.")] = 0.0,
    moves_data: Annotated[bool, typer.Option("--moves-data", help="Data crosses regions or clouds.")] = False,
    monthly_usd: Annotated[
        float | None, typer.Option("--monthly-usd", parser=inputs.dollars, metavar="USD", help="Present monthly cost.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List savings in order, each with its expected effect, its condition, and what to measure afterwards.

    Savings multiply: each step applies to the cost that the earlier steps leave.
    """
    from broker.app.results.cost_advice import SavingsAdvice
    from broker.economics import savings as economics
    from broker.economics.units import fraction, positive

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    workload = economics.WorkloadDescription(
        inference=inference,
        parameters=parameters,
        exact_output=exact,
        quantised=quantised,
        full_fine_tuning=full,
        batched=batched,
        interruptible=interruptible,
        checkpointed=checkpointed,
        on_spot=on_spot,
        steady_share=steady,
        committed=committed,
        autoscaled=autoscaled,
        utilisation=utilisation,
        spare_hours_share=spare,
        moves_data=moves_data,
    )
    if monthly_usd is not None:
        positive("--monthly-usd", monthly_usd, "USD")
    goal = target or (thumb.inference_utilisation if inference else thumb.training_utilisation)
    now = fraction("utilisation", utilisation)
    fewer = max(0.0, economics.fewer_gpus(now, fraction("target utilisation", goal)))
    advice = economics.ladder(workload, rules=thumb)
    rules: list[RuleCheck] = [economics.check_together(advice, thumb)] if inference else []
    rules.append(economics.check_fleet_claim(*thumb.quoted_fleet_claim))
    notes = [
        f"a model of {parameters / 1e9:g}B parameters, present GPU utilisation {utilisation:.0%}",
        "expected savings are ranges from practice, relative to the GPU cost before each step",
    ]
    if as_json:
        told = {"fewer_gpus_share": fewer, "target_utilisation": goal, "rules_of_thumb": rules}
        terminal.answer(SavingsAdvice.of_steps(advice, monthly_usd, **told, assumptions=notes))
    else:
        terminal.show(*_screen(terminal, advice, monthly_usd, (now, goal, fewer), rules, notes))


def _screen(
    terminal: Terminal,
    advice: tuple[SavingAdvice, ...],
    monthly: float | None,
    use: tuple[float, float, float],
    rules: list[RuleCheck],
    notes: list[str],
) -> list[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render.tables import Column, fitted, hanging

    applies = [one for one in advice if one.applies]
    parts: list[RenderableType] = [view.heading("In this order", f": {len(applies)} of {len(advice)} steps apply")]
    columns = (
        Column("#", align="right"), Column("step"), Column("saves", align="right"), Column("remaining", align="right"),
        Column("why", 2), Column("condition", 4), Column("measure afterwards", 3),
    )  # fmt: skip
    rows = [
        (str(one.order), one.name, f"{one.saving_low:.0%}-{one.saving_high:.0%}", _left(one, monthly), one.why,
         one.condition, one.measure)
        for one in applies
    ]  # fmt: skip
    parts += fitted(terminal.out, columns, rows)
    now, goal, fewer = use
    if fewer:
        parts.append(
            Text(f"At {goal:.0%} instead of {now:.0%} utilisation, the same work needs {fewer:.0%} fewer GPUs.")
        )
    skipped = [f"{one.name} ({one.why})" for one in advice if not one.applies]
    if skipped:
        parts += [view.heading("Not applicable"), hanging(Text("; ".join(skipped)), 2)]
    parts += view.rules(rules)
    parts += view.assumptions(notes)
    return parts


def _left(one: SavingAdvice, monthly: float | None) -> str:
    from broker.cli.advise import view

    if monthly is None:
        return f"{one.remaining_low:.0%}-{one.remaining_high:.0%}"
    return f"{view.dollars(monthly * one.remaining_low)}-{view.dollars(monthly * one.remaining_high)}"
