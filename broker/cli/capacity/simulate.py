"""`gpubroker simulate`: a workload on a virtual clock, decided by the code that decides for real jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, check_picture, draw, progress
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.results.simulations import SimulationReport
    from broker.core.ports import PolicySet
    from broker.whatif.workload import SimulatedWorkload

EXAMPLES = examples(
    "gpubroker simulate --example",
    "gpubroker simulate workload.yaml --jobs 1000000 --days 30 --seed 7 --policy policies/ --json",
    "gpubroker simulate workload.yaml --days 30 --policy policies/ --capacity A100-80GB:8=60 --against before.json",
    "gpubroker simulate --last 30d --policy new.yaml --json",
    "gpubroker simulate --example --chart",
    "gpubroker simulate workload.yaml --policy new.yaml --demand nlp=1.5 --demand '*=1.1'",
)
N = TypeVar("N", int, float)
_DAYS, _MOST_DAYS = 7, 3660


@dataclass(frozen=True)
class SimulateOptions:
    """The options of `simulate`."""

    workload: Annotated[Path | None, typer.Argument(metavar="WORKLOAD.yaml", help="Workload file.")] = None
    example: Annotated[bool, typer.Option("--example", help="Simulate the example that comes with gpubroker.")] = False
    last: Annotated[
        str | None,
        typer.Option("--last", metavar="TIME", help="Simulate the jobs recorded in this store, such as 30d."),
    ] = None
    jobs: Annotated[
        int | None, typer.Option(min=1, max=100_000_000, help="Total number of jobs. Default: by the rates.")
    ] = None
    days: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST_DAYS, help="Days in which jobs arrive. Default: 7; all of a trace or of --last."),
    ] = None
    seed: Annotated[int, typer.Option(help="Random seed of arrivals, lengths, prices and losses.")] = 7
    policy: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Policy file or folder. Repeatable. Default: the policies in force."),
    ] = None
    capacity: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL=N", help="Another number of machines, such as A100-80GB:8=60. Repeatable."),
    ] = None
    demand: Annotated[
        list[str] | None,
        typer.Option(metavar="TEAM=X", help="Factor for the jobs of a team; * for all others. Repeatable."),
    ] = None
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with an earlier report, saved from --json.")
    ] = None


@gathered
def simulate(context: typer.Context, given: SimulateOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Play a workload on a virtual clock: cost, waiting, utilisation, fairness, budgets, refusals.

    Placement, policies, queue and ledger are those of real jobs; machines, prices and money are simulated. Nothing is
    started, held or stored. The same workload, policies, seed and options give the same hash. Exit code 1 if the ledger
    does not balance at the end, which is a defect of gpubroker.
    """
    from broker.app.capacity import simulation
    from broker.app.results.simulations import SimulationReport
    from broker.cli.capacity import simulate_view

    terminal = Terminal.of(context)
    check_picture(drawing)
    files = list(given.policy or [])
    before = None if given.against is None else _earlier(given.against)
    workload = _workload(terminal, given, files)
    policy = _policies(terminal, files)
    capacity = _numbers("--capacity", given.capacity, int)
    changed = simulation.WhatIf(
        given.days or workload.days or _DAYS,
        given.seed,
        given.jobs,
        capacity,
        _numbers("--demand", given.demand, float),
    )
    with progress(terminal, "simulating") as told:
        result = simulation.played(workload, policy, changed, told)
    report = SimulationReport.of(result, policy, [str(file) for file in files], capacity)
    terminal.result(report, lambda: simulate_view.report(terminal.out, report, before))
    draw(terminal, lambda: simulate_view.charts(report), drawing)
    if not report.balanced:
        raise typer.Exit(1)


def _workload(terminal: Terminal, given: SimulateOptions, files: list[Path]) -> SimulatedWorkload:
    """The workload that the options name. The built-in example has policies of its own; they are added to ``files`` if
    that is empty."""
    from broker.app.capacity import simulation

    named = [bool(given.workload), given.example, given.last is not None]
    if sum(named) != 1:
        raise InvalidInput(
            "expected one of a workload file, --example and --last",
            where="WORKLOAD.yaml",
            hint="gpubroker simulate --example shows one",
        )
    if given.last is not None:
        from broker.app.capacity.past_workload import recorded_workload

        return recorded_workload(terminal.broker(look_after=False), filters.time_span("--last", given.last))
    path = given.workload
    if path is None:
        path, policies = simulation.example_files()
        if not files:
            files.append(policies)
        terminal.say(f"workload {path}, policies {', '.join(map(str, files))}")
    return simulation.read_workload(path)


def _policies(terminal: Terminal, files: list[Path]) -> PolicySet:
    from broker.app.capacity.simulation import policies_of

    if files:
        return policies_of(terminal.registries().load_policies, files)
    return terminal.broker(look_after=False).policy()


def _numbers(option: str, texts: list[str] | None, kind: type[N]) -> dict[str, N]:
    """Numbers by name from ``name=number``."""
    found: dict[str, N] = {}
    for text in texts or []:
        name, sign, number = text.rpartition("=")
        try:
            value = kind(number)
        except ValueError:
            value = kind(-1)
        if not sign or not name or not 0 <= value <= 10_000_000:
            raise InvalidInput(f"expected NAME=NUMBER; got {text!r}", where=option)
        if name in found:
            raise InvalidInput(f"{name!r} is given twice", where=option)
        found[name] = value
    return found


def _earlier(path: Path) -> SimulationReport:
    from pydantic import ValidationError

    from broker.app.results.simulations import SimulationReport

    try:
        return SimulationReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        raise InvalidInput(
            "is not a report of `gpubroker simulate --json` of this version", where=str(path),
            hint="gpubroker simulate WORKLOAD.yaml --json > before.json",
        ) from error  # fmt: skip
