"""Commands through a team server: as one person, without a store of their own."""

from pathlib import Path

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.sealed_secrets import JobSecrets
from broker.core.actors import ProcessAccount
from broker.core.events.events import AttemptEnded, JobEnded
from broker.core.events.outcomes import Cause, JobState
from broker.server.client.logins import SavedLogin, save_login
from tests.cli.documents import check
from tests.server.client.conftest import Laptop, TeamService
from tests.server.world import JOB, STRANGER, submitted


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with code and a job file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('first')\n")
    text = JOB.format(name="sent", team="team: nlp", most="2h").replace("run:", "workdir: .\nrun:")
    (folder / "job.yaml").write_text(text)
    return folder


def test_a_job_is_sent_with_its_files_and_secrets(
    service: TeamService, laptop: Laptop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    sent = laptop(
        "submit", str(project / "job.yaml"), "--yes", "--detach", "--secret", "HF_TOKEN", "--json", by="mia"
    )  # fmt: skip
    assert sent.code == 0, sent.err
    assert "2 files" in sent.err
    broker = service.world.broker
    view = jobs.find(broker, sent.json["id"])
    assert (view.user, view.job.name) == ("mia", "sent")
    assert view.job.snapshot is not None
    assert view.job.snapshot.files == 2
    assert JobSecrets(broker).of(view, ProcessAccount("service")) == {"HF_TOKEN": "hf_0123456789"}
    assert "hf_0123456789" not in sent.out + sent.err


def test_unchanged_files_are_not_sent_again(laptop: Laptop, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker.server.client.team_api import TeamApi

    sent: list[str] = []
    kept = TeamApi.put_content

    def counted(api: TeamApi, kind: str, sha256: str, data: bytes) -> None:
        sent.append(kind)
        kept(api, kind, sha256, data)

    monkeypatch.setattr(TeamApi, "put_content", counted)
    arguments = ("submit", str(project / "job.yaml"), "--yes", "--detach")
    (project / "train.py").write_text("print('new')\n")
    assert laptop(*arguments, by="mia").code == 0
    assert "trees" in sent
    sent.clear()
    assert laptop(*arguments, by="mia").code == 0
    assert sent == []


def test_what_a_person_may_not_see_is_not_listed(service: TeamService, laptop: Laptop) -> None:
    listed = {one["id"] for one in laptop("jobs", "list", "--json", by="mia").json["jobs"]}
    assert service.world.mine in listed
    assert service.world.foreign not in listed
    refused = laptop("status", service.world.foreign, by="mia")
    assert (refused.code, "unknown job 'foreign-" in refused.err) == (2, True)
    assert "did you mean" not in refused.err
    near = laptop("status", service.world.mine + "x", by="mia")
    assert (near.code, f"unknown job '{service.world.mine}x'; did you mean '{service.world.mine}'?" in near.err) == (
        2,
        True,
    )


def test_a_name_of_several_open_jobs_is_refused_with_their_ids(service: TeamService, laptop: Laptop) -> None:
    world = service.world
    older, newer = (submitted(world.broker, "loc", "mia", "nlp") for _ in range(2))
    hidden = submitted(world.broker, "loc", STRANGER, "vision")
    for command in ("cancel", "status"):
        refused = laptop(command, "loc", by="mia")
        assert (refused.code, f"2 open jobs are named 'loc': {newer}, {older}; give an id" in refused.err) == (2, True)
    with world.broker.store.writing() as tx:
        tx.append(newer, [(1, AttemptEnded(cause=Cause.PAID_UNTIL))], world.broker.clock.now())
        tx.append(newer, [(None, JobEnded(state=JobState.CANCELLED))], world.broker.clock.now())
    assert laptop("cancel", "loc", "--json", by="mia").json["id"] == older
    assert not jobs.find(world.broker, hidden).cancel_requested


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "list"),
        ("jobs", "queue"),
        ("status", "mine"),
        ("status", "--attempts", "mine"),
        ("logs", "mine"),
        ("approvals", "list"),
        ("budget",),
        ("whoami",),
    ],
    ids=" ".join,
)
def test_every_look_prints_text_and_json(laptop: Laptop, arguments: tuple[str, ...]) -> None:
    text, document = laptop(*arguments, by="mia"), laptop(*arguments, "--json", by="mia")
    assert (text.code, document.code) == (0, 0), text.err + document.err
    assert isinstance(document.json, dict)
    assert "Traceback" not in text.err


def test_a_plan_shows_places_verdict_and_hold(laptop: Laptop, project: Path) -> None:
    shown = laptop("plan", str(project / "job.yaml"), by="mia")
    assert shown.code == 0, shown.err
    assert "Allowed by the active policy." in shown.out
    assert "is held at submission, for up to" in shown.out
    document = laptop("plan", str(project / "job.yaml"), "--rank", "carbon", "--limit", "1000", "--json", by="mia")
    check("plan", document.json)
    assert all(one["kg_co2e_per_hour"] for one in document.json["placements"])
    alone = laptop("plan", str(project / "job.yaml"), str(project / "job.yaml"), by="mia")
    assert (alone.code, "`gpubroker plan with several jobs` does not work" in alone.err) == (2, True)
    refused = laptop("plan", str(project / "job.yaml"), by="vic")
    assert (refused.code, "no role" in refused.err) == (3, True)


def test_the_plan_of_a_submission_is_that_of_a_plan(laptop: Laptop, project: Path) -> None:
    job = project / "job.yaml"
    planned = laptop("plan", str(job), "--limit", "3", by="mia").out
    sent = laptop("submit", str(job), "--yes", "--detach", by="mia")
    assert sent.code == 0, sent.err
    assert [line for line in planned.splitlines() if line.startswith(("#", "1 ", "Allowed"))] == [
        line for line in sent.out.splitlines() if line.startswith(("#", "1 ", "Allowed"))
    ]
    assert "Held now: $" in sent.err
    assert "of budget nlp for" in sent.err
    assert "The job continues in the background" in sent.out


def test_secrets_and_jobs_by_name_are_those_of_this_machine(laptop: Laptop, project: Path) -> None:
    job = project / "job.yaml"
    missing = "secrets not in the environment: HF_TOKEN"
    assert missing in laptop("plan", str(job), "--secret", "HF_TOKEN", by="mia").out
    assert missing in laptop("submit", str(job), "--secret", "HF_TOKEN", "--yes", by="mia").err
    later = laptop("submit", str(job), "--after", "asking", "--name", "later", "--yes", "--detach", "--json", by="mia")
    assert later.code == 0, later.err
    assert [one["job"].startswith("asking-") for one in later.json["after"]] == [True]
    unknown = laptop("submit", str(job), "--after", "nothing", "--yes", by="mia")
    assert (unknown.code, "unknown job 'nothing'" in unknown.err) == (2, True)


def test_what_is_denied_or_asked_ends_as_without_a_server(laptop: Laptop, project: Path) -> None:
    text = JOB.format(name="costly", team="team: nlp", most="6h")
    (project / "costly.yaml").write_text(text)
    asked = laptop("submit", str(project / "costly.yaml"), "--yes", by="mia")
    assert asked.code == 6, asked.err
    assert "an approval covers: " in asked.err
    assert f"`gpubroker approvals grant {asked.err.split('Submitted as ')[1].split('.')[0]}`" in asked.err
    (project / "denied.yaml").write_text(text.replace("L4:1", "H100:8").replace("6h", "40h"))
    plan = laptop("plan", str(project / "denied.yaml"), "--json", by="mia").json
    assert (plan["exit_code"], plan["refusal"]["kind"]) == (3, "not_allowed")
    denied = laptop("submit", str(project / "denied.yaml"), "--yes", by="mia")
    assert denied.code == 3
    assert "Denied by the active policy." in denied.out
    assert plan["refusal"]["message"].split(" requested,")[0] in denied.err  # its part of this month shrinks with time


def test_one_asks_and_another_approves(service: TeamService, laptop: Laptop) -> None:
    own = laptop("approvals", "grant", "asking", by="mia")
    assert own.code in (2, 3), "nobody approves their own"
    done = laptop("approvals", "grant", "asking", "--reason", "agreed", by="apple")
    assert done.code == 0, done.err
    assert jobs.find(service.world.broker, service.world.asking).asked is None


def test_a_job_is_cancelled_and_extended_by_name(service: TeamService, laptop: Laptop) -> None:
    more = laptop("jobs", "extend", "mine", "--max-duration", "3h", "--json", by="mia")
    assert more.json["max_duration"] == 3 * 3600
    assert laptop("cancel", "mine", by="vic").code == 3
    assert "is being stopped" in laptop("cancel", "mine", by="mia").out
    assert jobs.find(service.world.broker, service.world.mine).cancel_requested
    early = laptop("jobs", "resume", "--same-files", "mine", "--yes", by="mia").err
    assert "it is being stopped, after a last checkpoint" in early, "cancelling it again would not help"


def test_a_refused_job_is_run_again_by_name(service: TeamService, laptop: Laptop, project: Path) -> None:
    (project / "long.yaml").write_text(JOB.format(name="long", team="team: nlp", most="6h"))
    sent = laptop("submit", str(project / "long.yaml"), "--yes", "--detach", "--json", by="mia").json["id"]
    early = laptop("jobs", "resume", "--same-files", sent, "--yes", by="mia")
    assert (early.code, "has not ended" in early.err) == (3, True)
    assert laptop("approvals", "refuse", sent, by="apple").code == 0
    assert laptop("jobs", "resume", "--same-files", sent, by="mia").code == 2, "no terminal, and no --yes"
    again = laptop("jobs", "resume", "--same-files", sent, "--yes", "--json", by="mia")
    assert again.code == 6, again.err
    assert again.json["name"] == "long"
    assert again.json["id"] != sent
    assert laptop("approvals", "refuse", again.json["id"], by="apple").code == 0


def test_what_the_server_does_not_offer_is_refused_and_opens_no_store(laptop: Laptop, tmp_path: Path) -> None:
    for arguments in (
        ("store", "backup", str(tmp_path / "copy.db")),
        ("store", "restore", str(tmp_path / "copy.db"), "--yes"),
        ("jobs", "diff", "a", "b"),
        ("people", "invite", "eve"),
        ("dev",),
        ("notices",),
    ):
        refused = laptop(*arguments, by="mia")
        told = f"`gpubroker {' '.join(arguments[:2])}` does not work through a team server"
        alone = f"`gpubroker {arguments[0]}` does not work through a team server"
        assert refused.code == 2, refused.err
        assert told in refused.err or alone in refused.err, refused.err
        assert ("GPUBROKER_SERVER=off" in refused.err) is (arguments[:2] != ("jobs", "diff"))


def test_a_revoked_login_says_how_to_log_in_again(
    laptop: Laptop, service: TeamService, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = f"gpb_{'0' * 12}_{'0' * 64}"
    save_login(SavedLogin(service.url, token))
    refused = laptop("jobs", "list")
    assert refused.code == 5
    assert f"gpubroker login {service.url}" in refused.err
    monkeypatch.setenv("GPUBROKER_SERVER", service.url)
    monkeypatch.setenv("GPUBROKER_TOKEN", token)
    refused = laptop("jobs", "list")
    assert (refused.code, "GPUBROKER_TOKEN takes precedence" in refused.err) == (5, True)
    assert "gpubroker login" not in refused.err, "the variable would win over it"


def test_a_token_without_a_server_does_not_act_as_the_person_of_the_login(
    laptop: Laptop, service: TeamService, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_login(SavedLogin(service.url, service.world.usual("mia")))
    monkeypatch.setenv("GPUBROKER_TOKEN", service.world.usual("vic"))
    for command in (("whoami",), ("jobs", "list"), ("logout",), ("login", service.url)):
        refused = laptop(*command)
        assert (refused.code, "GPUBROKER_TOKEN" in refused.err) == (2, True), refused.err
    monkeypatch.delenv("GPUBROKER_TOKEN")
    assert "mia" in laptop("whoami").out, "nothing was logged out"


def test_a_server_that_is_not_there_is_named(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("GPUBROKER_TOKEN", "x")
    monkeypatch.setattr("broker.server.client.team_api._TRIES", 1)
    refused = laptop("jobs", "list")
    assert (refused.code, "cannot be reached" in refused.err) == (5, True)
