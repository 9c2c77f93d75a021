"""`gpubroker advise deploy`: from requirements to a job file and a policy file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.economics.kinds import Goal, Method

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from broker.app.results.deploy_advice import DeployAdvice

EXAMPLES = examples(
    "gpubroker advise deploy --for fine-tune --parameters 7B --tokens 50M --budget-usd 100 --job-file job.yaml",
    "gpubroker advise deploy --for serve --parameters 13B --requests-per-minute 600 --tokens-per-request 300 "
    "--months 36 --sensitive --policy-file policy.yaml",
    "gpubroker advise deploy --for serve --parameters 8B --requests-per-minute 600 --sensitive --residency eu",
    "gpubroker advise deploy --for pretrain --parameters 70B --tokens 1.4T --deadline 8w --json",
)


@dataclass(frozen=True)
class DeployOptions:
    """The options of `deploy`."""

    goal: Annotated[Goal, typer.Option("--for", help="Goal of the deployment.")]
    model: inputs.ModelOptions
    method: Annotated[Method | None, typer.Option("--method", "-m", help="Training method. Default: the cheapest.")] = (
        None
    )
    tokens: Annotated[
        float | None, typer.Option(parser=inputs.count, metavar="COUNT", help="Training tokens, such as 50M.")
    ] = None
    sequence: Annotated[int, typer.Option("--context", help="Tokens per sequence.")] = 4096
    budget_usd: Annotated[float | None, inputs.usd("Budget of the run, or of a month of serving.")] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time limit of the training, such as 8w or 36h.")
    ] = None
    hours_per_day: Annotated[float, typer.Option(help="Hours of serving per day, up to 24.")] = 24.0
    months: Annotated[float, typer.Option(help="Months for which capacity is needed.")] = 36.0
    requests_per_minute: Annotated[float | None, typer.Option(help="Requests per minute at peak.")] = None
    tokens_per_request: Annotated[float, typer.Option(help="Tokens generated per request.")] = 200.0
    prompt_tokens: Annotated[
        float | None, typer.Option(help="Prompt tokens per request, in addition. Default: 500.")
    ] = None
    p95: Annotated[float | None, typer.Option(metavar="SECONDS", help="95th percentile of the latency.")] = None
    peak_to_baseline: Annotated[float, typer.Option(help="Peak demand over steady demand.")] = 1.0
    burst_hours: Annotated[float, typer.Option(help="Hours per day in which demand is above its steady part.")] = 8.0
    sensitive: Annotated[
        bool,
        typer.Option(
            "--sensitive", help="Data stays on owned machines, or where --provider, --region or --residency allow."
        ),
    ] = False
    location: Annotated[
        str,
        typer.Option(
            "--location", "-l", metavar="PLACE", help="Location for carbon figures: provider/region or country."
        ),
    ] = "world"
    name: Annotated[str | None, typer.Option(help="Name of the job and the policy.")] = None
    job_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the job file to FILE.")] = None
    policy_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the policy file to FILE.")] = None
    burst_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the job file for bursts, of a hybrid, to FILE.")
    ] = None
    at: inputs.PriceOptions = inputs.ANY_PRICE


@gathered
def deploy(context: typer.Context, given: DeployOptions, as_json: AsJson = False) -> None:
    """Derive a job file and a policy file from requirements.

    Steps: supply and budget, model, hardware, own or rent, parallelism, savings, monitoring, carbon, review. Each step
    shows its rule and its figures.
    """
    from broker.app.advise.deploy.path import deploy as advise
    from broker.app.advise.deploy.situation import DeployDemand
    from broker.app.results.deploy_advice import DeployAdvice

    terminal = Terminal.of(context)
    model = given.model.subject()
    thumb = inputs.measured(terminal, inputs.thumb(context))
    limit = None if given.deadline is None else filters.time_span("--deadline", given.deadline)
    situation = applied(
        DeployDemand,
        given,
        model=model,
        name=_named(given.name or f"{given.goal.value}-{model.parameters / 1e9:.3g}b"),
        deadline_hours=None if limit is None else limit / timedelta(hours=1),
        prompt_tokens=thumb.prompt_tokens if given.prompt_tokens is None else given.prompt_tokens,
        context=given.sequence,
        p95_s=given.p95,
        places=given.at.where.places(terminal),
    )
    prices = inputs.with_held(terminal, inputs.market(terminal, given.at.price, places=situation.places), thumb)
    found = DeployAdvice.from_parts(advise(situation, prices, thumb))
    files = (given.job_file, given.burst_file, given.policy_file)
    for path, text in zip(files, (found.job_file, found.burst_file, found.policy_file), strict=True):
        if path is not None and text:
            _write(path, text)
            terminal.say(f"wrote {path}")
    shown = {
        "Job file": "" if given.job_file else found.job_file,
        "Job file of bursts": "" if given.burst_file else found.burst_file,
        "Policy file": "" if given.policy_file else found.policy_file,
    }
    terminal.result(found, lambda: _screen(found, shown))


def _named(name: str) -> str:
    """The text as a name that job files and policies accept."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:40] or "deployment"


def _write(path: Path, text: str) -> None:
    """Write a new file. Raises `InvalidInput` if the file exists or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInput("exists and is not overwritten", where=str(path), hint="choose another name") from error
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", where=str(path)) from error


def _screen(found: DeployAdvice, files: Mapping[str, str]) -> Iterator[RenderableType]:
    """``files``: the texts that were not written to files, by their titles."""
    from rich.text import Text

    from broker.cli.advise import view
    from broker.cli.render.tables import hanging

    yield view.heading(found.summary)
    yield from (hanging(Text.assemble(("warning: ", "yellow"), warning), 0) for warning in found.warnings)
    for number, step in enumerate(found.steps, 1):
        yield Text.assemble((f"{number}. {step.step}", "bold cyan"), (f"  {step.rule}", "dim"))
        known = {name: value for name, value in step.numbers.items() if value is not None}
        if known:
            yield hanging(view.figures((name.replace("_", " "), _shown(name, known[name])) for name in known), 1)
        yield hanging(Text.assemble("→ ", (step.decision, "bold")), 3)
    yield from view.assumptions(found.assumptions)
    for title, text in files.items():
        if text:
            yield view.heading(title)
            yield hanging(Text(text.rstrip()), 2)


def _shown(name: str, value: object) -> str:
    from broker.cli.advise import view
    from broker.economics.estimates import digits

    if isinstance(value, float):
        if "usd" in name:
            return view.estimate(value)
        if value.is_integer() and abs(value) < 1e6:  # as it was given
            return f"{value:,.0f}"
        return f"{value:.3g}" if value >= 1e6 else digits(value)
    return str(value)
