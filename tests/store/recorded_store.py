"""A store of commit 6aefd21 (version 0.1, schema 0007): recorded from real commands on the simulated market, as SQL.

Eleven jobs: two that run (one of them with extended limits), one that waits for approval, one whose approval was
refused, one that a policy file named ``secrets-team.yaml`` keeps from starting, one that waits for a secret, one whose
time is used up, one cancelled, two failed, one succeeded. Every later version must open it and go on.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

SQL = Path(__file__).parent / "recorded" / "store-0.1.sql"
RECORDED_AT = datetime(2026, 11, 22, 20, 2, tzinfo=UTC)  # a little after the last event

RUNNING = ("extending-gfr22k", "running-xdjubv")
WAITING_FOR_APPROVAL = "waiting-for-approval-mtkyvz"
DENIED = "denied-2pqqyh"
NEEDS_SECRET = "needs-secret-p9eqkk"
PAUSED = "paused-jfzatx"
ENDED = ("blocked-7cjd3n", "cancelled-3w4td5", "failed-6qsuwg", "finished-aeav59", "refused-vfyw8d")


def write_recorded(path: Path) -> str:
    """Write the recorded store to a new SQLite file; its URL."""
    with sqlite3.connect(path) as connection:
        connection.executescript(SQL.read_text("utf-8"))
    connection.close()
    return f"sqlite:///{path}"
