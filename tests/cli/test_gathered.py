"""Commands whose options are the fields of dataclasses."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from broker.cli.options import expand_options


@dataclass(frozen=True)
class InnerOptions:
    layers: Annotated[int | None, typer.Option(help="Number of layers.")] = None


@dataclass(frozen=True)
class OuterOptions:
    goal: Annotated[str, typer.Argument(help="Goal.")]
    size: InnerOptions
    gpu: Annotated[list[str] | None, typer.Option("--gpu", "-g")] = None


def test_fields_are_options_also_those_of_a_field_that_is_a_dataclass() -> None:
    seen = []
    app = typer.Typer()

    @app.command()
    @expand_options
    def command(
        context: typer.Context, given: OuterOptions, as_json: Annotated[bool, typer.Option("--json")] = False
    ) -> None:
        """What it does."""
        seen.append((context.command.name, given, as_json))

    ran = CliRunner().invoke(app, ["serve", "--layers", "3", "-g", "L4", "-g", "H100", "--json"])
    assert ran.exit_code == 0, ran.output
    assert CliRunner().invoke(app, ["train"]).exit_code == 0
    assert seen == [
        ("command", OuterOptions("serve", InnerOptions(3), ["L4", "H100"]), True),
        ("command", OuterOptions("train", InnerOptions(), None), False),
    ]
    assert "What it does." in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, []).exit_code == 2, "the goal has no default"
