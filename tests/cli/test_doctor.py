"""`gpubroker doctor` and `gpubroker prices`."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest


def findings(gpubroker: Any, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    by_area: dict[str, list[dict[str, Any]]] = {}
    for finding in gpubroker("doctor", "--json", *arguments).json["findings"]:
        by_area.setdefault(finding["area"], []).append(finding)
    return by_area


def test_a_fresh_install_is_healthy(gpubroker: Any, home: Path) -> None:
    found = findings(gpubroker)
    assert set(found) >= {
        "python",
        "extra",
        "disk",
        "runs",
        "gpu",
        "store",
        "reconciler",
        "policy",
        "engine",
        "provider",
    }
    assert found["store"][0]["facts"]["where"] == str(home / "gpubroker.db")
    assert {finding["facts"]["provider"] for finding in found["provider"]} == {"owned", "pricebook", "sandbox"}
    assert found["policy"][0]["health"] == "note"
    done = gpubroker("doctor")
    assert done.code == 0
    assert "gpubroker policy apply FILES" in done.out
    assert "optional parts not installed: " in done.out
    assert "pip install 'gpubroker[" not in done.out
    assert "pip install 'gpubroker[" in gpubroker("doctor", "--verbose").out


def test_variables_that_are_no_settings(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_POLCY", "x")
    monkeypatch.setenv("GPUBROKER_CHECKPOINT_DIR", "/somewhere")  # set for jobs, not a setting
    monkeypatch.setenv("GPUBROKER_PROVIDERS__SANDBOX__SEED", "3")
    (finding,) = findings(gpubroker)["settings"]
    assert "GPUBROKER_POLCY is not a setting; did you mean 'GPUBROKER_POLICY'?" in finding["message"]


def test_settings_that_are_wrong_are_a_finding(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_RECONCILE_EVERY", "soon")
    done = gpubroker("doctor")
    assert done.code == 2
    assert "✗ settings" in done.out


def test_a_store_that_cannot_be_used_is_a_finding(gpubroker: Any, home: Path) -> None:
    with sqlite3.connect(home / "gpubroker.db") as store:
        store.execute("UPDATE alembic_version SET version_num = '9999'")
    done = gpubroker("doctor", "--rebuild")
    assert done.code == 2
    assert "✗ store" in done.out
    assert done.out.count("✗") == 2  # and the last line, that refers to it
    assert "mend it: upgrade gpubroker" in done.out


@pytest.mark.parametrize(("free", "health"), [(2_000_000_000, "ok"), (900_000_000, "note"), (40_000_000, "problem")])
def test_a_disk_that_is_nearly_full(gpubroker: Any, monkeypatch: pytest.MonkeyPatch, free: int, health: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12 - free, free))
    assert [disk["health"] for disk in findings(gpubroker)["disk"]] == [health]


def test_run_folders_that_cannot_be_written(gpubroker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GPUBROKER_RUNS", (tmp_path / "file" / "runs").as_uri())
    done = gpubroker("doctor")
    assert done.code == 2
    assert "✗ runs" in done.out
    assert "set GPUBROKER_RUNS to another place" in done.out


def test_a_store_elsewhere_has_a_disk_of_its_own(gpubroker: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GPUBROKER_STORE", f"sqlite:///{tmp_path}/other.db")
    assert [disk["facts"]["folder"] for disk in findings(gpubroker)["disk"]] == [str(tmp_path / "home"), str(tmp_path)]


def test_jobs_without_a_reconciler_are_a_problem(gpubroker: Any, job: Path) -> None:
    gpubroker("submit", job, "--yes", "--detach")  # the tests' programs start no reconciler
    (finding,) = findings(gpubroker)["reconciler"]
    assert finding["health"] == "problem"
    assert finding["fix"]


def test_rebuild_proves_what_is_kept(gpubroker: Any, job: Path, home: Path) -> None:
    gpubroker("submit", job, "--yes", "--detach")
    found = findings(gpubroker, "--rebuild")
    assert found["rebuild"][0]["facts"] == {"jobs": 1, "differed": []}
    assert found["ledger"][0]["facts"] == {"balanced": True}
    with sqlite3.connect(home / "gpubroker.db") as store:
        store.execute('UPDATE job SET view = replace(view, \'"state":"launching"\', \'"state":"running"\')')
    assert findings(gpubroker, "--rebuild")["rebuild"][0]["health"] == "problem"
    assert findings(gpubroker, "--rebuild")["rebuild"][0]["health"] == "ok"


def test_a_provider_tells_its_endpoints(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import providers.sandbox

    setup = {"endpoints": {"prices": {"url": "https://example.org", "setting": "GPUBROKER_X"}}, "logins": {}}
    monkeypatch.setattr(providers.sandbox, "describe_setup", lambda: setup, raising=False)
    (sandbox,) = [f for f in findings(gpubroker)["provider"] if f["facts"]["provider"] == "sandbox"]
    assert sandbox["facts"]["setup"] == setup


def test_polls(gpubroker: Any) -> None:
    done = gpubroker("prices", "poll", "--provider", "pricebook", "--json")
    assert done.code == 0
    (poll,) = done.json["polls"]
    assert poll["status"] == "ok"
    assert poll["offers_seen"] > 100
    assert poll["offers_changed"] == 0
    assert poll["seconds"] >= 0
    assert poll["rows_skipped"] == {}
    assert "offers" in gpubroker("prices", "poll").out


def test_status_of_polls(gpubroker: Any) -> None:
    document = gpubroker("prices", "status", "--json").json
    assert {provider["provider"] for provider in document["providers"]} == {"owned", "pricebook"}
    assert "sandbox" in document["never_polled"]
    done = gpubroker("prices", "status")
    assert "never asked: " in done.out


def test_a_provider_that_fails_does_not_hold_back_the_others(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_PROVIDERS__OWNED__WATTS", "many")
    done = gpubroker("prices", "poll", "--json")
    assert done.code == 5
    by_name = {poll["provider"]: poll for poll in done.json["polls"]}
    assert by_name["owned"]["status"] == "failed"
    assert "watts" in by_name["owned"]["error"]
    assert by_name["pricebook"]["status"] == "ok"
