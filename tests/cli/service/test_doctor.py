"""`gpubroker doctor` and `gpubroker prices`."""

import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.app import clouds
from broker.app.doctor import doctor
from broker.core.extras import install_command
from broker.core.values.clock import SystemClock
from broker.engines.registry import ENGINES
from broker.store import open_store
from broker.store.records import PollStatus
from tests.cli.conftest import LOCAL, OFFLINE


def findings(gpubroker: Any, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    by_area: dict[str, list[dict[str, Any]]] = {}
    for finding in gpubroker("doctor", "--json", *arguments).json["findings"]:
        by_area.setdefault(finding["area"], []).append(finding)
    return by_area


def test_no_line_is_filled_up_with_blanks(gpubroker: Any, home: Path) -> None:
    lines = gpubroker("doctor", "--verbose").out.splitlines()
    assert lines == [line.rstrip() for line in lines]


def test_a_fresh_install_is_healthy(gpubroker: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor._EXTRAS, "torch", ("no_such_module", "the PyTorch example"))  # here it may be there
    found = findings(gpubroker)
    assert set(found) >= {
        "python",
        "extra",
        "disk",
        "runs",
        "gpu",
        "store",
        "background process",
        "policy",
        "engine",
        "provider",
    }
    assert found["store"][0]["facts"]["where"] == str(home / "gpubroker.db")
    assert {finding["facts"]["provider"] for finding in found["provider"]} == set(OFFLINE)
    assert found["policy"][0]["health"] == "note"
    done = gpubroker("doctor")
    assert done.code == 0
    assert "gpubroker policy apply FILES" in done.out
    assert "extras not installed: " in done.out
    assert install_command("torch") not in done.out
    assert f"  {install_command('torch')} adds the PyTorch example" in gpubroker("doctor", "--verbose").out


def test_the_settings_files_are_named_the_winner_first(gpubroker: Any, home: Path) -> None:
    own = home.parent / "gpubroker.toml"
    (absent,) = findings(gpubroker)["settings file"]
    assert absent["message"].startswith(f"no file {own} or ")
    own.write_text("offline = true\n")
    assert f"from {own}; GPUBROKER_* variables win" in findings(gpubroker)["settings file"][0]["message"]


def test_a_login_is_told_first_and_advice_is_for_the_store_of_this_machine(
    gpubroker: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUBROKER_SERVER", "https://gpus.example.org")
    monkeypatch.setenv("GPUBROKER_TOKEN", "t")
    found = gpubroker("doctor", "--json").json["findings"]
    assert (found[0]["area"], found[0]["facts"]) == ("login", {"server": "https://gpus.example.org"})
    advice = [one["fix"] for one in found if "gpubroker policy apply" in one["fix"]]
    assert advice == ["GPUBROKER_SERVER=off gpubroker policy apply FILES"]
    assert "not about https://gpus.example.org" in gpubroker("doctor").out
    monkeypatch.delenv("GPUBROKER_SERVER")
    assert "GPUBROKER_SERVER is not" in gpubroker("doctor").out


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
        store.execute("UPDATE alembic_version SET version_num = 'v9999'")
    done = gpubroker("doctor", "--rebuild")
    assert done.code == 2
    assert "✗ store" in done.out
    assert done.out.count("✗") == 2  # and the last line, that refers to it
    assert "fix: upgrade gpubroker" in done.out


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


@pytest.mark.parametrize(
    ("place", "asked", "narrowed", "health"),
    [
        ("gs://runs/x", True, True, "ok"),
        ("gs://runs/x", False, False, "ok"),
        ("s3://runs/x", True, False, "problem"),
        ("az://runs/x", True, True, "ok"),
        ("az://runs/x", False, False, "ok"),
    ],
)
def test_doctor_says_what_nodes_reach(
    gpubroker: Any, monkeypatch: pytest.MonkeyPatch, place: str, asked: bool, narrowed: bool, health: str
) -> None:
    monkeypatch.setenv("GPUBROKER_RUNS", place)
    monkeypatch.setenv("GPUBROKER_RUNS_NARROWED", str(asked).lower())
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "team")
    (finding,) = findings(gpubroker)["runs"]
    assert (finding["facts"]["narrowed"], finding["health"]) == (narrowed, health), finding["message"]


def test_a_store_elsewhere_has_a_disk_of_its_own(gpubroker: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GPUBROKER_STORE", f"sqlite:///{tmp_path}/other.db")
    assert [disk["facts"]["folder"] for disk in findings(gpubroker)["disk"]] == [str(tmp_path / "home"), str(tmp_path)]


def test_jobs_without_a_reconciler_are_a_problem(gpubroker: Any, job: Path) -> None:
    gpubroker("submit", job, "--yes", "--detach")  # the tests' programs start no reconciler
    (finding,) = findings(gpubroker)["background process"]
    assert finding["health"] == "problem"
    assert finding["fix"]


def test_programs_that_skypilot_needs_are_named(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_installed", lambda module: module == "sky" or clouds.is_installed(module))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nc" else f"/usr/bin/{name}")
    (finding,) = findings(gpubroker)["program"]
    assert finding["health"] == "note"
    assert "not installed: nc: no job starts on Kubernetes" in finding["message"]
    assert finding["fix"] == "install nc"


def test_rebuild_proves_what_is_kept(gpubroker: Any, job: Path, home: Path) -> None:
    gpubroker("submit", job, "--yes", "--detach")
    found = findings(gpubroker, "--rebuild")
    assert found["rebuild"][0]["facts"] == {"jobs": 1, "differed": []}
    assert found["ledger"][0]["facts"] == {"balanced": True}
    with sqlite3.connect(home / "gpubroker.db") as store:
        store.execute('UPDATE job SET view = replace(view, \'"state":"launching"\', \'"state":"running"\')')
    assert findings(gpubroker, "--rebuild")["rebuild"][0]["health"] == "problem"
    assert findings(gpubroker, "--rebuild")["rebuild"][0]["health"] == "ok"


SETUP = {
    "endpoints": {
        "prices": {"url": "https://example.org", "setting": "GPUBROKER_PROVIDERS__SANDBOX__BASE_URL", "tls": "X"},
        "charges": {"url": "https://example.com", "setting": "GPUBROKER_PROVIDERS__SANDBOX__CHARGES_URL"},
    },
    "logins": {
        "key": {"found": True, "where": "SANDBOX_KEY", "how": "set SANDBOX_KEY", "adds": "prices"},
        "id": {"found": False, "how": "set SANDBOX_ID and SANDBOX_SECRET", "adds": "quotas"},
        "secret": {"found": False, "how": "set SANDBOX_ID and SANDBOX_SECRET", "adds": "quotas"},
    },
}


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """The sandbox tells of endpoints and logins, as a cloud does."""
    import providers.sandbox

    monkeypatch.setattr(providers.sandbox, "describe_setup", lambda: SETUP, raising=False)


def test_an_engine_that_is_not_installed_tells_how_to(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "skypilot", "no_such_module:Nothing")
    (found,) = [one for one in findings(gpubroker)["engine"] if one["facts"]["engine"] == "skypilot"]
    assert (found["health"], found["fix"]) == ("note", f"install it: {install_command('skypilot')}")
    monkeypatch.setattr(clouds, "is_installed", lambda module: module != "sky")
    assert f"fix: {install_command('skypilot')}\n" in gpubroker("setup", "aws", "--dry-run").out


def sandbox_of(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in document["providers"] if one["provider"] == "sandbox"]
    assert isinstance(found, dict)
    return found


def test_each_provider_tells_its_endpoints_and_logins(
    gpubroker: Any, setup: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = gpubroker("doctor", "--json").json
    assert {one["provider"] for one in document["providers"]} == set(OFFLINE)
    found = sandbox_of(document)
    assert found["ready"]
    assert [(it["name"], it["url"], it["setting"], it["changed"]) for it in found["endpoints"]] == [
        ("prices", "https://example.org", "GPUBROKER_PROVIDERS__SANDBOX__BASE_URL", False),
        ("charges", "https://example.com", "GPUBROKER_PROVIDERS__SANDBOX__CHARGES_URL", False),
    ]
    assert [it["name"] for it in found["logins_found"]] == ["key"]
    assert [it["name"] for it in found["logins_missing"]] == ["id", "secret"]
    monkeypatch.setenv("GPUBROKER_PROVIDERS__SANDBOX__BASE_URL", "https://example.org")
    assert [it["changed"] for it in sandbox_of(gpubroker("doctor", "--json").json)["endpoints"]] == [True, False]


def test_people_see_what_a_login_would_add_and_what_was_changed(
    gpubroker: Any, setup: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = gpubroker("doctor")
    assert "Missing logins" in done.out
    assert done.out.count("set SANDBOX_ID and SANDBOX_SECRET") == 1
    assert "SANDBOX_KEY" not in done.out
    assert "https://example" not in done.out
    assert "GPUBROKER_PROVIDERS__SANDBOX__CHARGES_URL" in gpubroker("doctor", "--verbose").out
    monkeypatch.setenv("GPUBROKER_PROVIDERS__SANDBOX__BASE_URL", "https://example.org")
    done = gpubroker("doctor")
    assert "sandbox prices: https://example.org" in done.out
    assert "https://example.com" not in done.out


def test_a_bad_setting_of_a_provider_is_named(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_PROVIDERS__OWNED__WATTS", "many")
    done = gpubroker("doctor", "--json")
    assert done.code == 2
    (owned,) = [one for one in done.json["providers"] if one["provider"] == "owned"]
    assert not owned["ready"]
    assert "watts" in owned["problem"]
    monkeypatch.setenv("GPUBROKER_PROVIDERS__OWNT__WATTS", "3")
    done = gpubroker("doctor")
    assert done.code == 2
    assert "did you mean 'owned'?" in done.out


def test_a_login_that_nobody_gave_is_no_fault_and_one_that_is_refused_is(
    gpubroker: Any, home: Path, setup: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    now = datetime.now(UTC)
    for name in ("sandbox", "pricebook"):
        more: dict[str, Any] = {"status": PollStatus.LOGIN_MISSING, "hint": "set IT", "complete": False}
        store.record_poll(name, started=now, finished=now, offers=[], error="no login", **more)
    store.close()
    health = {one["facts"]["provider"]: one["health"] for one in findings(gpubroker)["provider"]}
    assert (health["sandbox"], health["pricebook"]) == ("problem", "note")  # the sandbox has found a key
    assert "fix: set IT" in gpubroker("doctor").out


def test_who_is_told_of_alerts(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", "json://example.com/s3cr3t")
    monkeypatch.setenv("GPUBROKER_NOTIFY__ODD", "nonsense://s3cr3t")
    done = gpubroker("doctor", "--json")
    assert done.code == 2
    told = {one["facts"]["target"]: one for one in done.json["findings"] if one["area"] == "notify"}
    assert told["ops"]["health"] == "ok"
    assert told["ops"]["facts"]["address"] == "json://example.com/…"
    assert "GPUBROKER_NOTIFY__ODD" in told["odd"]["message"]
    assert "s3cr3t" not in done.out + done.err


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
    assert {provider["provider"] for provider in document["providers"]} == set(LOCAL)
    assert "sandbox" in document["never_polled"]
    done = gpubroker("prices", "status")
    assert "never polled: " in done.out


def test_a_provider_that_fails_does_not_hold_back_the_others(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_PROVIDERS__OWNED__WATTS", "many")
    done = gpubroker("prices", "poll", "--json")
    assert done.code == 5
    by_name = {poll["provider"]: poll for poll in done.json["polls"]}
    assert by_name["owned"]["status"] == "failed"
    assert "watts" in by_name["owned"]["error"]
    assert by_name["pricebook"]["status"] == "ok"
