"""The program: its commands, error handling and exit codes.

Exit codes: 0 done, 1 unexpected error, 2 usage error or invalid file, 3 denied by a policy, 4 no feasible capacity,
5 provider or engine error, or the team server cannot be reached or does not accept the login, 6 approval needed, 7 the
job failed, 130 interrupted with Ctrl-C, 141 the output pipe was closed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from broker.cli.identity import process_actor
from broker.cli.lazy import Escaped, lazy_group, simplify_help
from broker.cli.options import examples
from broker.cli.renames import replacement_text
from broker.cli.terminal import CUT_OFF, Terminal
from broker.core.errors import BrokerError, InvalidInput

if TYPE_CHECKING:
    from broker.app.wiring import Registries
    from broker.core.actors import Actor

# Panels of the help, in its order.
PANELS = {
    "Jobs": {
        "demo": "broker.cli.service.demo:demo",
        "init": "broker.cli.jobs.init:init",
        "plan": "broker.cli.jobs.plan:plan",
        "submit": "broker.cli.jobs.submit:submit",
        "status": "broker.cli.jobs.jobs:status",
        "logs": "broker.cli.jobs.jobs:logs",
        "cancel": "broker.cli.jobs.jobs:cancel",
        "jobs": "broker.cli.jobs.jobs:app",
        "dev": "broker.cli.jobs.dev:dev",
        "ssh": "broker.cli.jobs.ssh:ssh",
        "exec": "broker.cli.jobs.ssh:exec_",
    },
    "Prices": {
        "offers": "broker.cli.prices.offers:offers",
        "prices": "broker.cli.prices.prices:app",
    },
    "Money": {
        "budget": "broker.cli.billing.budget:budget",
        "policy": "broker.cli.policy.policy:app",
        "approvals": "broker.cli.jobs.approvals:app",
        "report": "broker.cli.billing.report:app",
        "launches": "broker.cli.service.launches:launches",
    },
    "Capacity": {"capacity": "broker.cli.capacity.capacity:app"},
    "Advice": {"advise": "broker.cli.advise:app"},
    "Team": {
        "login": "broker.cli.access.login:login",
        "logout": "broker.cli.access.login:logout",
        "whoami": "broker.cli.access.login:whoami",
        "people": "broker.cli.access.people:app",
        "tokens": "broker.cli.access.tokens:app",
        "audit": "broker.cli.access.tokens:audit",
    },
    "Administration": {
        "setup": "broker.cli.service.setup:setup",
        "doctor": "broker.cli.service.doctor:doctor",
        "serve": "broker.cli.service.serve:serve",
        "autostart": "broker.cli.service.autostart:autostart",
        "reconcile": "broker.cli.service.reconcile:reconcile",
        "notices": "broker.cli.service.notices:notices",
        "store": "broker.cli.service.store:app",
        "schema": "broker.cli.service.schema:schema",
    },
}
COMMANDS = {name: place for panel in PANELS.values() for name, place in panel.items()}

LOCAL_COMMANDS = frozenset(
    {
        *("demo", "init", "advise", "doctor", "schema", "autostart"),
        *("serve", "reconcile", "login", "logout", "whoami"),
    }
)
"""Commands that a login does not change. All others act through the team server that the user is logged in to, or are
refused: so is ``store``, since a copy of this machine's own store would look like a backup of the team's. ``serve`` and
``reconcile`` can mean no other store than that of the machine that they run on, and have to run where an administrator
is logged in to the same or another server."""

LOCAL_SUBCOMMANDS = frozenset({("policy", "test")})
"""Commands of groups that act through a server, but need neither a server nor a store themselves."""


def _print_version(requested: bool) -> None:
    if requested:
        from broker.core.extras import own_version

        print(f"gpubroker {own_version()}")  # noqa: T201  # the answer that was asked for
        raise typer.Exit


def gpubroker(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
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
    cls=lazy_group(PANELS),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples("gpubroker demo", "gpubroker doctor", "gpubroker plan JOB.yaml", "gpubroker submit JOB.yaml --yes"),
)
app.callback()(gpubroker)


@cache
def _root_command() -> Any:
    """All commands. Cached, because building them takes a tenth of a second."""
    return simplify_help(typer.main.get_command(app))


def _normalized_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments, with `help X` and `version` as options: people try these words first."""
    match list(arguments):
        case ["help", *other_arguments]:
            return [*other_arguments, "--help"]
        case ["version", *other_arguments]:
            return ["--version", *other_arguments]
        case unchanged:
            return unchanged


def _uses_server(terminal: Terminal, arguments: Sequence[str]) -> bool:
    """Whether the command acts through a team server: the user is logged in to one, and it is not of this machine."""
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    command_words = tuple(argument for argument in arguments if not argument.startswith("-"))[:2]
    if command_words in LOCAL_SUBCOMMANDS or name not in COMMANDS or name in LOCAL_COMMANDS:
        return False
    return terminal.server is not None


def _command_path(program: Any, arguments: Sequence[str]) -> str:
    """The command that the arguments name: ``gpubroker jobs list``. Errors about options do not always tell it."""
    path, command = "gpubroker", program
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path += f" {word}"
    return path


def _check_renames(arguments: Sequence[str]) -> None:
    """Raises `InvalidInput` for a former subcommand of what is one command now: it would be taken for an argument."""
    command, words = _root_command(), list(takewhile(lambda word: not word.startswith("-"), arguments))
    for number, word in enumerate(words):
        if not hasattr(command, "commands"):
            if text := replacement_text(" ".join(words[:number]), word):
                raise InvalidInput(text)
            return
        command = command.commands.get(word)


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether gpubroker itself is to print JSON. Arguments after ``--`` belong to another program."""
    own_arguments = list(arguments)
    return "--json" in (own_arguments[: own_arguments.index("--")] if "--" in own_arguments else own_arguments)


def run(arguments: Sequence[str], registries: Callable[[], Registries], actor: Actor | None = None) -> int:
    """Run one command as ``actor`` (default: the user of this process) and return its exit code.

    Errors are printed as a sentence, or with --json as a document. If the reader of the output closed it (`| head`),
    the command ends without a message.
    """
    arguments = _normalized_arguments(arguments)
    terminal = Terminal(registries, actor or process_actor(), as_json=asks_for_json(arguments))
    try:
        code = _run_command(terminal, arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        terminal.print_stopped()
        return 130
    except BrokenPipeError as error:
        return terminal.cut_off() or terminal.print_crash(error)
    except OSError as error:  # stdout cannot be written, so an error cannot be printed as a document
        return terminal.unwritable(error)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return terminal.cut_off() or CUT_OFF  # Rich met the broken pipe and replaced stdout
    finally:
        terminal.close()


def _run_command(terminal: Terminal, arguments: Sequence[str]) -> int:
    try:
        _check_renames(arguments)
        terminal.through_server = _uses_server(terminal, arguments)
        code = _root_command().main(args=list(arguments), prog_name="gpubroker", standalone_mode=False, obj=terminal)
        return code if isinstance(code, int) else 0
    except BrokerError as error:
        return terminal.refuse(error)
    except TyperException as error:
        return terminal.print_usage_error(error, _command_path(_root_command(), arguments))
    except typer.Abort:  # Ctrl-C or end of input at a question
        terminal.say("Stopped. Nothing was changed.")
        return 130
    except Escaped as escaped:
        raise escaped.__cause__ or escaped from None
    except Exception as error:  # noqa: BLE001  # last resort: print one sentence, write the traceback to the log file
        return terminal.print_crash(error)
