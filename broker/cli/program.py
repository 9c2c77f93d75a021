"""The program: its commands, and how it ends.

Exit codes: 0 done, 1 unexpected, 2 usage or invalid file, 3 denied by a policy, 4 no feasible capacity, 5 provider or
engine error, 6 approval needed, 7 the job itself failed, 130 interrupted from the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from broker.cli import (
    advise,
    approvals,
    backtest,
    budget,
    capacity,
    demo,
    doctor,
    jobs,
    offers,
    plan,
    policy,
    prices,
    prices_history,
    prices_import,
    prices_watch,
    reconcile,
    report,
    serve,
    submit,
)
from broker.cli.options import examples
from broker.cli.terminal import Terminal
from broker.core.errors import BrokerError

if TYPE_CHECKING:
    from broker.app.wiring import Registries

app = typer.Typer(
    name="gpubroker",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples("gpubroker demo", "gpubroker doctor", "gpubroker plan JOB.yaml", "gpubroker submit JOB.yaml --yes"),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("gpubroker")
        except PackageNotFoundError:  # run from a checkout
            number = "(not installed as a package)"
        print(f"gpubroker {number}")  # noqa: T201  # the answer that was asked for
        raise typer.Exit


@app.callback()
def gpubroker(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A broker for GPU capacity: what it costs, where your jobs should run, and what they spent."""


app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("offers", epilog=offers.EXAMPLES)(offers.offers)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("submit", epilog=submit.EXAMPLES)(submit.submit)
app.add_typer(jobs.app, name="jobs")
app.add_typer(policy.app, name="policy")
app.add_typer(budget.app, name="budget")
app.add_typer(approvals.app, name="approvals")
app.add_typer(report.app, name="report")
app.add_typer(capacity.app, name="capacity")
app.add_typer(backtest.app, name="backtest")
app.add_typer(prices.app, name="prices")
prices.app.command("history", epilog=prices_history.EXAMPLES)(prices_history.history)
prices.app.command("import", epilog=prices_import.EXAMPLES)(prices_import.import_)
prices.app.add_typer(prices_watch.app, name="watch")
app.add_typer(advise.app, name="advise")
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("reconcile", epilog=reconcile.EXAMPLES, hidden=True)(reconcile.reconcile)


@cache
def _command() -> Any:
    """All commands, built once a process: it takes a tenth of a second."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str], registries: Callable[[], Registries]) -> int:
    """Run one command and return its exit code. Every error ends in one sentence for a person, or one document."""
    terminal = Terminal(registries, as_json="--json" in arguments)
    try:
        code = _command().main(args=list(arguments), prog_name="gpubroker", standalone_mode=False, obj=terminal)
        return code if isinstance(code, int) else 0
    except BrokerError as error:
        return terminal.refuse(error)
    except TyperException as error:
        return terminal.misused(error)
    except typer.Abort:
        terminal.say("Stopped; nothing was changed.")
        return 130
    except Exception as error:  # noqa: BLE001  # the last resort: a person gets a sentence, the log file the traceback
        return terminal.crashed(error)
    finally:
        terminal.close()
