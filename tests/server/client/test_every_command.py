"""Command by command: through the server, of this machine alone, or with the reason why not. Made from the program."""

from importlib import import_module

import pytest
import typer

from broker.cli.program import COMMANDS, LOCAL_COMMANDS, LOCAL_SUBCOMMANDS

ENTERS = "enters a machine through the engine's own account, which is the server's"
OF_THE_HOST = "changes what the server itself keeps or asks; whoever runs the server does that there"
PEOPLE = "gives rights: a stolen token must not, so it is done on the server itself"
WATCHES = "a watch belongs to the account that is told"
BUYING = "reads or writes what the server alone has: logins, documents, the demand of all teams"
NOT_OFFERED = {
    **dict.fromkeys(("dev", "ssh", "exec"), ENTERS),
    **dict.fromkeys(("jobs prune", "prices accept", "prices import", "prices poll", "prices prune"), OF_THE_HOST),
    **dict.fromkeys(("report charges", "notices"), OF_THE_HOST),
    **dict.fromkeys(("setup", *(f"store {one}" for one in ("backup", "restore"))), OF_THE_HOST),
    **dict.fromkeys(("jobs diff",), "compares two submissions whose files only their store has"),
    **dict.fromkeys(
        (f"people {one}" for one in ("disable", "grant", "invite", "withdraw")),
        PEOPLE,
    ),
    **dict.fromkeys(("tokens create", "tokens revoke"), PEOPLE),
    "policy decisions": "lists requests of all teams",
    **dict.fromkeys((f"prices watch {one}" for one in ("add", "list", "remove")), WATCHES),
    **dict.fromkeys(
        (f"capacity {one}" for one in (*("add", "checklist", "plan", "proof", "propose", "remove", "review"),)),
        BUYING,
    ),
}


def leaves(target: str, name: str) -> list[str]:
    """The commands of a target of the program's table, by their whole names."""
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        return [name]
    commands = typer.main.get_group(found).commands
    return [
        f"{name} {one} {part}".strip() for one, made in commands.items() for part in getattr(made, "commands", {"": 0})
    ]


LOCAL = sorted(one for name, at in COMMANDS.items() if name not in LOCAL_COMMANDS for one in leaves(at, name))
OFFERED = {
    "approvals grant",
    "approvals list",
    "approvals refuse",
    "approvals revoke",
    "audit",
    "budget",
    "cancel",
    "capacity buy",
    "capacity list",
    "capacity purchases",
    "capacity quote",
    "capacity undo",
    "jobs extend",
    "jobs files",
    "jobs get",
    "jobs list",
    "jobs queue",
    "jobs resume",
    "launches",
    "logs",
    "offers",
    "people list",
    "plan",
    "policy apply",
    "policy check",
    "policy explain",
    "policy findings",
    "policy rollback",
    "policy show",
    "prices export",
    "prices history",
    "prices status",
    "report anomalies",
    "report billed",
    "report focus",
    "report forecasts",
    "report review",
    "report showback",
    "report spend",
    "report units",
    "status",
    "submit",
    "tokens list",
}


@pytest.mark.parametrize("command", LOCAL)
def test_a_command_acts_through_the_server_or_has_a_reason(command: str) -> None:
    ways = [command in OFFERED, command in NOT_OFFERED, tuple(command.split()) in LOCAL_SUBCOMMANDS]
    assert ways.count(True) == 1, command


def test_what_has_a_reason_is_a_command() -> None:
    assert NOT_OFFERED.keys() <= set(LOCAL)
