"""The program: its commands, error handling and exit codes.

Exit codes: 0 done, 1 unexpected error, 2 usage error or invalid file, 3 denied by a policy, 4 no feasible capacity,
5 provider or engine error, or the team server cannot be reached or does not accept the login, 6 approval needed, 7 the
job failed, 130 interrupted with Ctrl-C, 141 the reader of the output closed it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from broker.cli.identity import process_actor
from broker.cli.lazy import Escaped, lazy_group
from broker.cli.options import examples
from broker.cli.terminal import CUT_OFF, Terminal
from broker.core.errors import BrokerError

if TYPE_CHECKING:
    from broker.app.wiring import Registries
    from broker.core.actors import Actor

# In the order of the help.
COMMANDS = {
    "demo": "broker.cli.service.demo:demo",
    "offers": "broker.cli.prices.offers:offers",
    "init": "broker.cli.jobs.init:init",
    "plan": "broker.cli.jobs.plan:plan",
    "submit": "broker.cli.jobs.submit:submit",
    "dev": "broker.cli.jobs.dev:dev",
    "ssh": "broker.cli.jobs.ssh:ssh",
    "ssh-proxy": "broker.cli.jobs.ssh:ssh_proxy",
    "exec": "broker.cli.jobs.ssh:exec_",
    "jobs": "broker.cli.jobs.jobs:app",
    "policy": "broker.cli.policy.policy:app",
    "budget": "broker.cli.billing.budget:app",
    "approvals": "broker.cli.jobs.approvals:app",
    "report": "broker.cli.billing.report:app",
    "capacity": "broker.cli.capacity.capacity:app",
    "prices": "broker.cli.prices.prices:app",
    "advise": "broker.cli.advise:app",
    "people": "broker.cli.access.people:app",
    "tokens": "broker.cli.access.tokens:app",
    "audit": "broker.cli.access.tokens:audit",
    "launches": "broker.cli.service.launches:app",
    "login": "broker.cli.access.login:login",
    "logout": "broker.cli.access.login:logout",
    "whoami": "broker.cli.access.login:whoami",
    "notices": "broker.cli.service.notices:app",
    "doctor": "broker.cli.service.doctor:doctor",
    "schema": "broker.cli.service.schema:schema",
    "serve": "broker.cli.service.serve:serve",
    "store": "broker.cli.service.store:app",
    "reconcile": "broker.cli.service.reconcile:reconcile",
}

OF_THIS_MACHINE = frozenset(
    {
        *("demo", "init", "advise", "doctor", "schema"),
        *("serve", "reconcile", "login", "logout", "whoami"),
    }
)
"""Commands that a login does not change. All others act through the team server that the user is logged in to, or are
refused: so is ``store``, since a copy of this machine's own store would pass for a backup of the team's. ``serve`` and
``reconcile`` can mean no other store than that of the machine that they run on, and have to run where an administrator
is logged in to the same or another server."""

PARTS_OF_THIS_MACHINE = frozenset({("policy", "test")})
"""Commands of groups that act through a server, but need neither a server nor a store themselves."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("gpubroker")
        except PackageNotFoundError:  # run from a checkout
            number = "(not installed as a package)"
        print(f"gpubroker {number}")  # noqa: T201  # the answer that was asked for
        raise typer.Exit


def gpubroker(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Broker for GPU capacity: compare prices, place and run jobs within budget, account for their cost."""
    # For the first model, pydantic would search all installed packages for plugins, which with hundreds of packages
    # takes longer than reading the store. Our models need none. This applies to the command line only, not to programs
    # that import gpubroker.
    with suppress(ImportError, AttributeError):  # a private part of pydantic: without it, commands start slower
        from pydantic.plugin import _loader

        _loader._plugins = _loader._plugins or {}


app = typer.Typer(
    name="gpubroker",
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples("gpubroker demo", "gpubroker doctor", "gpubroker plan JOB.yaml", "gpubroker submit JOB.yaml --yes"),
)
app.callback()(gpubroker)


@cache
def _program() -> Any:
    """All commands. Cached, because building them takes a tenth of a second."""
    return typer.main.get_command(app)


def _through_server(terminal: Terminal, arguments: Sequence[str]) -> bool:
    """Whether the command acts through a team server: the user is logged in to one, and it is not of this machine."""
    name = next((one for one in arguments if not one.startswith("-")), None)
    words = tuple(one for one in arguments if not one.startswith("-"))[:2]
    if words in PARTS_OF_THIS_MACHINE or name not in COMMANDS or name in OF_THIS_MACHINE:
        return False
    return terminal.server is not None


def _command_path(program: Any, arguments: Sequence[str]) -> str:
    """The command that the arguments name: ``gpubroker jobs list``. Errors about options do not always tell it."""
    path, found = "gpubroker", program
    for word in arguments:
        found = getattr(found, "commands", {}).get(word)
        if found is None:
            break
        path += f" {word}"
    return path


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether gpubroker itself is to print JSON. Arguments after ``--`` belong to another program."""
    own = list(arguments)
    return "--json" in (own[: own.index("--")] if "--" in own else own)


def run(arguments: Sequence[str], registries: Callable[[], Registries], actor: Actor | None = None) -> int:
    """Run one command as ``actor`` (default: the user of this process) and return its exit code.

    Errors are printed as a sentence, or with --json as a document. If the reader of the output closed it (`| head`),
    the command ends without a message.
    """
    terminal = Terminal(registries, actor or process_actor(), as_json=asks_for_json(arguments))
    try:
        code = _run(terminal, arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        terminal.stopped()
        return 130
    except BrokenPipeError as error:
        return terminal.cut_off() or terminal.crashed(error)
    except OSError as error:  # stdout cannot be written, so an error cannot be printed as a document
        return terminal.unwritable(error)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return terminal.cut_off() or CUT_OFF  # Rich met the broken pipe and replaced stdout
    finally:
        terminal.close()


def _run(terminal: Terminal, arguments: Sequence[str]) -> int:
    try:
        terminal.through_server = _through_server(terminal, arguments)
        code = _program().main(args=list(arguments), prog_name="gpubroker", standalone_mode=False, obj=terminal)
        return code if isinstance(code, int) else 0
    except BrokerError as error:
        return terminal.refuse(error)
    except TyperException as error:
        return terminal.misused(error, _command_path(_program(), arguments))
    except typer.Abort:  # Ctrl-C or end of input at a question
        terminal.say("Stopped. Nothing was changed.")
        return 130
    except Escaped as escaped:
        raise escaped.__cause__ or escaped from None
    except Exception as error:  # noqa: BLE001  # last resort: print one sentence, write the traceback to the log file
        return terminal.crashed(error)
