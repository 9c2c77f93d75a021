"""Makes a store what an earlier revision of the schema had, so that upgrades can be tried on it."""

from __future__ import annotations

from sqlalchemy import Connection

_JOB_INDEXES = ("name", "user", "team", "state", "project", "environment", "id_begins")
# What each revision added, newest first, as statements that take it away.
_TAKEN_AWAY = {
    "0039": tuple(f"DROP INDEX notice_{name}" for name in ("begins", "newest", "undelivered")),
    "0037": (
        "DROP INDEX offer_by_price",
        *(f"ALTER TABLE offer DROP COLUMN {name}" for name in ("accelerator", "count")),
    ),
    "0033": ("DROP TABLE kept_answer",),
    "0032": ("DROP TABLE holding_proof", "ALTER TABLE holding DROP COLUMN proof"),
    "0031": ("DROP INDEX ledger_entry_own", "DROP INDEX ledger_entry_unattempted"),
    "0030": ("DROP TABLE sign_in_link",),
    "0029": ("DROP TABLE use_sum", "DROP INDEX machine_time_folded", "ALTER TABLE machine_time DROP COLUMN folded"),
    "0028": ("DROP INDEX attempt_event_ended",),
    "0027": ("DROP INDEX attempt_event_lost", "DROP INDEX attempt_event_metrics"),
    "0026": ("ALTER TABLE holding DROP COLUMN order_id",),
    "0025": ("DROP TABLE provider_sign_in", "DROP TABLE identity"),
    "0024": ("DROP TABLE device_login",),
    "0023": ("DROP TABLE anomaly_answer",),
    "0022": ("DROP INDEX job_array", "DROP INDEX job_top", "ALTER TABLE job DROP COLUMN array_id"),
    "0021": ("ALTER TABLE notice DROP COLUMN thread",),
    "0020": ("DROP TABLE statement",),
    "0019": ("DROP TABLE page_session",),
    "0018": ("DROP TABLE api_request",),
    "0017": (
        "DROP TABLE price_acceptance",
        *(f"ALTER TABLE offer DROP COLUMN {name}" for name in ("doubt", "doubt_detail", "trusted")),
        *(f"ALTER TABLE poll_run DROP COLUMN {name}" for name in ("gone", "samples")),
    ),
    "0016": tuple(f"DROP TABLE {name}" for name in ("person", "api_token", "audit_log")),
    "0015": tuple(f"DROP TABLE {name}" for name in ("purchase", "purchase_event", "purchase_quote")),
    "0014": (
        "DROP INDEX standing_use_job",
        "DROP INDEX standing_use_open",
        "ALTER TABLE standing_use DROP COLUMN closed",
        "ALTER TABLE standing_grant DROP COLUMN closed_use",
    ),
    "0013": (
        "ALTER TABLE ledger_entry DROP COLUMN rate",
        "ALTER TABLE ledger_balance DROP COLUMN holds_from",
        "ALTER TABLE ledger_balance DROP COLUMN burns",
    ),
    "0012": tuple(f"DROP INDEX {name}" for name in ("poll_run_started", "poll_run_newest", "charge_ends")),
    "0011": (
        "DROP TABLE machine_time",
        "DROP INDEX attempt_event_asking",
        *(f"DROP INDEX job_{name}" for name in _JOB_INDEXES),
        "ALTER TABLE job DROP COLUMN environment",
    ),
    "0010": ("DROP TABLE movement_sum", "DROP TABLE metering"),
    "0007": ("DROP TABLE charge",),
    "0006": (
        *(f"DROP TABLE {name}" for name in ("spend_sum", "spend_group", "budget_mark")),
        "DROP INDEX ledger_entry_long",
        "ALTER TABLE job DROP COLUMN live",
    ),
}


def take_back(connection: Connection, revision: str) -> None:
    """Take away everything that came after this revision."""
    for number, statements in _TAKEN_AWAY.items():
        if number > revision:
            for statement in statements:
                connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
