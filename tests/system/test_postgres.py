"""The local job end to end with its store in PostgreSQL."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.program import eventually, kill, processes, run, start
from tests.system.conftest import STEPS, WEAR, saved, verify_checkpoints

pytestmark = pytest.mark.system


def test_the_local_job_on_postgresql(tmp_path: Path, job_file: Path, new_postgres: Callable[[], str]) -> None:
    home, url = tmp_path / "home", new_postgres()
    store = {"GPUBROKER_STORE": url, **WEAR}
    cli = start("submit", str(job_file), "--yes", "--json", home=home, env=store)
    eventually(lambda: saved(home), "a checkpoint is saved")
    kill(processes(home, "command"))
    kill(processes(home, "reconciler"))
    out, err = cli.communicate(timeout=240)
    assert cli.returncode == 0, err
    assert json.loads(out)["state"] == "succeeded"
    shown = run("status", "character-model", "--json", home=home, env=store)
    document = json.loads(shown.stdout)
    assert [attempt["cause"] for attempt in document["attempts"]] == ["killed_by_signal", "completed"]
    verify_checkpoints(home)
    assert not list(home.rglob("*.db")), "nothing went into a file store beside it"
    events, balance = in_database(url)
    assert events > 10
    assert balance == (0, 0), "nothing held, and everything sums to nothing"
    assert max(attempt["step"] or 0 for attempt in document["attempts"]) == STEPS


def in_database(url: str) -> tuple[int, tuple[int, int]]:
    """Number of events; what is held, and the sum of all entries."""
    import psycopg

    with psycopg.connect(url) as connection:
        counted = connection.execute("SELECT count(*) FROM attempt_event").fetchone()
        query = "SELECT coalesce(sum(micros) FILTER (WHERE account = 'held'), 0), sum(micros) FROM ledger_entry"
        sums = connection.execute(query).fetchone()
    assert counted is not None, "an aggregate is one row"
    assert sums is not None, "an aggregate is one row"
    held, total = sums
    return int(counted[0]), (int(held), int(total))
