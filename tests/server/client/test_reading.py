"""Reading through a team server: the same documents as on the server, of what a person may see."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.agent.names import draft
from broker.agent.outputs import OutputFile
from broker.app.jobs import job_files
from broker.app.jobs.job_files import RemoteFile
from broker.app.wiring import Broker
from broker.core.events.views import JobView
from broker.core.values.money import Money
from broker.engines.runfolder.runfolder import KeptOutput
from tests.cli.documents import check
from tests.server.client.conftest import Laptop, TeamService
from tests.server.world import JOB, POLICY

LOOKS = {
    "policy-show": ("policy", "show"),
    "policy-show-versions": ("policy", "show", "--versions"),
    "report-spend": ("report", "spend", "--sandbox", "--by", "team,user"),
    "report-units": ("report", "units"),
    "report-forecasts": ("report", "forecasts"),
    "report-anomalies": ("report", "anomalies"),
    "report-showback": ("report", "showback", "--idle", "proportional"),
    "report-showback-list": ("report", "showback", "--frozen"),
    "report-review": ("report", "review"),
    "report-billed": ("report", "billed", "--by", "job", "--since", "7d"),
    "capacity-list": ("capacity", "list", "--offline"),
    "capacity-purchases": ("capacity", "purchases", "--all"),
    "offers": ("offers", "--gpu", "L4:1", "-n", "3", "--all", "--offline"),
    "prices-history": ("prices", "history", "--gpu", "L4:1", "--where", "provider=sandbox"),
    "prices-status": ("prices", "status"),
    "people-list": ("people", "list"),
    "tokens-list": ("tokens", "list", "--person", "mia"),
    "audit": ("audit", "--limit", "5"),
    "audit-verify": ("audit", "--verify"),
    "launches": ("launches",),
    "jobs-files": ("jobs", "files", "mine"),
    "jobs-files-checkpoints": ("jobs", "files", "mine", "--checkpoints"),
}
FOR_ALL_TEAMS = {"policy-show-versions", "report-showback", "report-showback-list", "report-review", "report-billed"}
OF_THE_HOUSE = {"people-list", "tokens-list", "audit", "audit-verify", "capacity-list"}


@pytest.mark.parametrize("name", LOOKS)
def test_every_reading_command_prints_text_and_its_document(laptop: Laptop, name: str) -> None:
    text, document = laptop(*LOOKS[name], by="adam"), laptop(*LOOKS[name], "--json", by="adam")
    assert (text.code, document.code) == (0, 0), text.err + document.err
    assert text.out.strip()
    check(name, document.json)


@pytest.mark.parametrize("name", LOOKS)
def test_a_member_reads_what_concerns_the_team_alone(laptop: Laptop, name: str) -> None:
    found = laptop(*LOOKS[name], "--json", by="mia")
    if name in FOR_ALL_TEAMS | OF_THE_HOUSE:
        assert (found.code, "no role that allows" in found.err + found.out) == (3, True)
    else:
        assert found.code == 0, found.err
        assert "vision" not in found.out


def test_a_team_sees_the_rules_that_name_no_other(laptop: Laptop) -> None:
    def rules(by: str) -> set[str]:
        return {one["name"] for one in laptop("policy", "show", "--json", by=by).json["active"]["rules"]}

    assert {"nlp", "vision", "both", "all", "big"} <= rules("fay")
    assert rules("mia") & rules("fay") == {"nlp", "big"} | (rules("fay") - {"nlp", "vision", "both", "all", "big"})
    assert "team: [vision]" in laptop("policy", "show", "--files", by="fay").out
    withheld = laptop("policy", "show", "--files", by="mia")
    assert ("team: [" in withheld.out, "to those who may see all teams" in withheld.err) == (False, True)
    assert laptop("policy", "show", "--versions", by="mia").code == 3
    assert "adam" in laptop("policy", "show", "--versions", by="fay").out


def test_spending_by_any_dimension_is_that_of_the_team(laptop: Laptop) -> None:
    def held(by: str, dimensions: str) -> Money:
        report = laptop("report", "spend", "--sandbox", "--by", dimensions, "--json", by=by).json
        return Money.usd(report["total"]["held"])

    everything = held("fay", "team")
    for dimensions in ("team", "user", "job", "user,team", "workload,month"):
        assert held("fay", dimensions) == everything
        assert held("mia", dimensions) == held("mia", "team")
        assert held("mia", dimensions) + held("otto", dimensions) < everything, "one job has no team"


def test_results_are_fetched_verified_and_continued(
    laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 8_000
    sha256, path = hashlib.sha256(data).hexdigest(), "results/model.bin"
    asked: list[int] = []

    def content(start: int) -> list[bytes]:
        asked.append(start)
        return [data[start:]]

    written = OutputFile(path, "o", len(data), sha256, datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(job_files, "outputs", lambda *_: [KeptOutput(1, 0, written)])
    monkeypatch.setattr(
        job_files, "output_files", lambda *_: [RemoteFile(path, len(data), sha256, lambda at: iter(content(at)))]
    )
    place = tmp_path / "here" / path
    place.parent.mkdir(parents=True)
    draft(place, sha256).write_bytes(data[:1_000_000])
    done = laptop("jobs", "get", "mine", "results/", "--to", str(tmp_path / "here"), "--json", by="mia")
    assert done.code == 0, done.err
    check("jobs-get", done.json)
    assert place.read_bytes() == data
    assert asked == [1_000_000]
    refused = laptop("jobs", "get", "mine", "nothing", by="mia")
    assert (refused.code, "nothing" in refused.err) == (2, True)


def test_results_of_an_array_are_listed_and_fetched_task_by_task(
    laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(JOB.format(name="sweep", team="team: nlp", most="2h") + "array: {range: 2}\n")
    array = laptop("submit", str(file), "--yes", "--detach", "--json", by="mia").json["id"]

    def written(view: JobView) -> tuple[bytes, str]:
        data = view.id.encode()
        return data, hashlib.sha256(data).hexdigest()

    def outputs(_: Broker, view: JobView, attempt: int | None = None) -> list[KeptOutput]:
        data, sha256 = written(view)
        return [KeptOutput(1, 0, OutputFile("m.json", "o", len(data), sha256, datetime(2026, 1, 1, tzinfo=UTC)))]

    def output_files(_: Broker, view: JobView, __: object, folder: str = "") -> list[RemoteFile]:
        data, sha256 = written(view)
        return [RemoteFile(f"{folder}m.json", len(data), sha256, lambda start: iter([data[start:]]))]

    monkeypatch.setattr(job_files, "outputs", outputs)
    monkeypatch.setattr(job_files, "output_files", output_files)
    listed = laptop("jobs", "files", "sweep", "--json", by="mia").json["files"]
    assert [(row["path"], row["job"]) for row in listed] == [(f"{n}/m.json", f"{array}-{n}") for n in (0, 1)]
    done = laptop("jobs", "get", "sweep", "m.json", "--to", str(tmp_path / "here"), by="mia")
    assert done.code == 0, done.err
    assert [(tmp_path / "here" / str(n) / "m.json").read_text() for n in (0, 1)] == [f"{array}-{n}" for n in (0, 1)]
    refused = laptop("jobs", "get", "sweep", "m.csv", by="mia")
    assert (refused.code, "m.json" in refused.err) == (2, True)


def test_a_policy_is_applied_from_a_laptop(laptop: Laptop, service: TeamService, tmp_path: Path) -> None:
    file = tmp_path / "test.yaml"
    file.write_text(POLICY.replace("cost: $4", "cost: $3"))
    seen = laptop("policy", "apply", "--dry-run", str(file), "--diff", by="adam")
    assert seen.code == 0, seen.err
    assert "approve_above: {cost: $3" in seen.out
    check("policy-apply-preview", laptop("policy", "apply", str(file), "--dry-run", "--json", by="adam").json)
    assert laptop("policy", "apply", str(file), by="adam").code == 2, "no terminal, and no --yes"
    done = laptop("policy", "apply", str(file), "--yes", "--reason", "cheaper", "--json", by="adam")
    assert done.code == 0, done.err
    check("policy-apply", done.json)
    assert "already active" in laptop("policy", "apply", str(file), "--yes", by="adam").out
    back = laptop("policy", "rollback", "--yes", by="adam").out
    assert "approve_above: {cost: $4" in back, "the rules that apply now"
    assert "Rules: 1 changed.\nVersion 3 is active." in back
    assert laptop("policy", "apply", str(file), "--yes", by="tara").code == 3
    active = service.world.broker.store.active_policy()
    assert active is not None
    assert active.files == {"test.yaml": POLICY}
