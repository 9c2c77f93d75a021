"""`gpubroker tokens` and `audit`: API tokens of people and service accounts, and the audit log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal
from broker.core.access.people import TokenScope
from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.figures import plural

if TYPE_CHECKING:
    from broker.app.access.documents import AuditLine, AuditLog, TokenList, TokenResult
    from broker.store.access.access import AuditChain

app = typer.Typer(no_args_is_help=True, help="API tokens of a team server: create, list, revoke.")


@app.command(
    epilog=examples(
        "gpubroker tokens create ann --label laptop",
        "gpubroker tokens create ann --scope read --scope jobs --expires 14d",
        "gpubroker tokens create ci --service --scope read --scope jobs --label 'nightly build' --json",
    )
)
def create(
    context: typer.Context,
    person: Annotated[str, typer.Argument(metavar="PERSON", help="Name in `gpubroker people list`.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, jobs, approvals, purchases, … Repeatable. Default: read.")
    ] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="Period of validity, at most 90d.")] = "30d",
    label: Annotated[str, typer.Option("--label", help="Purpose of the token.")] = "",
    service: Annotated[
        bool, typer.Option("--service", help="For a program, such as CI, which is added. It never approves.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create an API token and print it once. Only its hash is stored.

    The token allows what its scopes say, but never more than its owner's roles. It is printed to stdout, all
    messages to stderr.
    """
    from broker.app.access.documents import CreatedToken
    from broker.app.access.tokens import create as use_case

    known_scopes = {token_scope.value: token_scope for token_scope in TokenScope}
    scope_names = scope or [TokenScope.READ.value]
    for name in scope_names:
        if name not in known_scopes:
            raise UnknownName("scope", name, known_scopes)
    term = filters.time_span_option("--expires", expires)
    terminal = Terminal.of(context)
    broker = terminal.broker()
    scopes = [known_scopes[name] for name in scope_names]
    new_token = use_case(broker, person, label, scopes, term, by=terminal.actor, service=service)
    created = CreatedToken.of_new(new_token, broker.clock.now())
    if not as_json:
        expiry_text = f"{created.expires_at:%Y-%m-%d %H:%M} UTC"
        terminal.say(f"Token {created.id} of {person} ({', '.join(created.scopes)}), valid until {expiry_text}.")
        terminal.say("It is shown only once; keep it like a password:")
    terminal.result(created, lambda: [created.token])


@app.command("list", epilog=examples("gpubroker tokens list", "gpubroker tokens list --person ann --json"))
def list_(
    context: typer.Context,
    person: Annotated[str | None, typer.Option("--person", help="Only tokens of this person.")] = None,
    as_json: AsJson = False,
) -> None:
    """List tokens: owner, scopes, expiry, last use. The tokens themselves are not stored."""
    from broker.app.use_cases.people import list_tokens

    terminal = Terminal.of(context)
    token_list = terminal.ask(list_tokens, person)
    terminal.result(token_list, lambda: token_table(terminal.out, token_list))


@app.command(epilog=examples("gpubroker tokens revoke 0123456789ab"))
def revoke(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="ID in `gpubroker tokens list`: the part after gpb_.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a token. It fails from the next request on."""
    from broker.app.access.documents import TokenResult
    from broker.app.access.tokens import revoke as use_case

    terminal = Terminal.of(context)
    broker = terminal.broker()
    revoked = TokenResult.of(use_case(broker, token, by=terminal.actor), broker.clock.now())
    terminal.result(revoked, lambda: [f"Revoked token {revoked.id} of {revoked.person}."])


_TOKEN_COLUMNS: tuple[ValueColumn[TokenResult], ...] = (
    ValueColumn("id", lambda row: row.id),
    ValueColumn("person", lambda row: row.person),
    ValueColumn("state", lambda row: "valid" if row.good else "revoked" if row.revoked_at else "expired"),
    ValueColumn("scopes", lambda row: ", ".join(row.scopes), 1, folds=True),
    ValueColumn("until", lambda row: formats.moment(row.expires_at), 1),
    ValueColumn("last used", lambda row: formats.moment(row.used_at), 2),
    ValueColumn("label", lambda row: row.label, 3, folds=True),
)
_AUDIT_COLUMNS: tuple[ValueColumn[AuditLine], ...] = (
    ValueColumn("line", lambda row: str(row.number), 5, "right"),
    ValueColumn("at", lambda row: formats.moment(row.at)),
    ValueColumn("person", lambda row: row.person),
    ValueColumn("action", lambda row: row.action),
    ValueColumn("subject", lambda row: row.subject, 1),
    ValueColumn("outcome", lambda row: ": ".join(filter(None, (row.outcome.value, row.reason)))),
    ValueColumn("before", lambda row: row.before, 3, folds=True),
    ValueColumn("after", lambda row: row.after, 2, folds=True),
    ValueColumn("from", lambda row: row.origin, 4),
)


def token_table(console: Console, token_list: TokenList) -> list[RenderableType]:
    """One row per token."""
    return table_parts(console, _TOKEN_COLUMNS, token_list.tokens) if token_list.tokens else ["no tokens"]


def audit_table(console: Console, log_lines: AuditLog) -> list[RenderableType]:
    """One row per line of the log."""
    return table_parts(console, _AUDIT_COLUMNS, log_lines.lines) if log_lines.lines else [_NO_LINES]


def _verification_lines(verification: AuditChain, noted: str) -> Iterator[str]:
    holding = plural(verification.lines, "line holds", "lines hold")
    yield f"{holding}. The hash of the last one is {verification.digest or 'none'}."
    if not verification.intact:
        yield f"LINE {verification.lines + 1:,} WAS CHANGED OR REMOVED."
    elif not verification.is_noted:
        yield f"NO LINE HAS THE HASH {noted}: lines were removed or written anew since."


_NO_LINES = "No change on record. Acts of this machine's users are in the events of their jobs: `gpubroker status JOB`."
AUDIT_EXAMPLES = examples("gpubroker audit", "gpubroker audit --person ann --limit 200", "gpubroker audit --verify")


def audit(
    context: typer.Context,
    person: Annotated[str | None, typer.Option("--person", help="Only changes by this person.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only changes of this job, person or token.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum lines (a server: 1,000).")
    ] = 50,
    verify: Annotated[bool, typer.Option("--verify", help="Tell whether all lines are as they were written.")] = False,
    noted: Annotated[
        str, typer.Option("--noted", metavar="HASH", help="The hash that --verify printed earlier. Implies --verify.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show changes through the API and of people and tokens, newest first. Acts of this machine's users are not in it.

    Each line says who changed what, from where, before and after; none can be edited. What people do to jobs on this
    machine is in the events of each job: `gpubroker status JOB`.

    Each line has a hash of itself and of the line before. --verify computes them again, says which line is the first
    that was changed or removed, and prints the hash of the last one. Keep it outside of the database: with --noted, it
    shows a log that was written anew.
    """
    from broker.app.use_cases.people import audit_lines, verify_audit

    terminal = Terminal.of(context)
    if verify or noted:
        if noted and not re.fullmatch("[0-9a-f]{64}", noted):
            message = f"expected the 64 hexadecimal digits that --verify printed; got {noted[:70]!r}"
            raise InvalidInput(message, where="--noted")
        verification = terminal.ask(verify_audit, noted)
        terminal.result(verification, lambda: _verification_lines(verification, noted))
        if not (verification.intact and verification.is_noted):
            raise typer.Exit(1)
        return
    log_lines = terminal.ask(audit_lines, person, subject, limit)
    terminal.result(log_lines, lambda: audit_table(terminal.out, log_lines))
