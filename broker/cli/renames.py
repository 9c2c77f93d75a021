"""Commands and options that were removed or renamed, and what to use instead. A release may empty the table."""

from __future__ import annotations

from collections.abc import Mapping

# A command, a group, or a command with an option, without `gpubroker`: what to say of it. The answer begins with the
# key: "`gpubroker advise throughput` is now `gpubroker advise speed`". Commands in backquotes are whole and exist.
RENAMES: Mapping[str, str] = {
    "backtest": "left: in a checkout, `python -m tests.lab.placement` and `python -m tests.lab.reserve` measure that",
    "store archive": "was removed: events stay in the database; `gpubroker prices prune` deletes older price history",
    "people add": "is now `gpubroker people invite`; service accounts: `gpubroker tokens create NAME --service`",
    "people link": "is now `gpubroker people invite NAME --subject SUBJECT`",
    "people second-factor": "was removed: people have their second factor at the identity provider (setting `sign_in`)",
}


def renamed(command: str, part: str = "") -> str:
    """What to use instead of the option or subcommand ``part`` of a command, or of the command itself; empty if the
    table does not know it."""
    key = f"{command} {part}".strip()
    return f"`gpubroker {key}` {RENAMES[key]}" if key in RENAMES else ""
