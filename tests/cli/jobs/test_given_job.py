"""What is given beside a job file, and jobs without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Done
from tests.this_machine import CPUS

Run = Callable[..., Done]


def test_a_command_after_two_dashes_is_a_job(gpubroker: Run) -> None:
    done = gpubroker("plan", "--gpu", "H100:8", "--json", "--", "python", "x y.py", "--lr=1")
    found = done.json["job"]
    assert (found["name"], found["machines"]) == ("python", ["H100:8"])


def test_options_after_two_dashes_are_the_commands(gpubroker: Run) -> None:
    assert gpubroker("plan", "--json", "--", "env", "--json", "--nonsense").code in (0, 4)


OPTIONS = (
    *("--gpu", "L4:2", "--cpus", "8", "--memory", "64GB", "--nodes", "2", "--spot", "--region", "us-*", "--json"),
    *("--provider", "sandbox", "--max-cost", "$4", "--max-duration", "3h", "--deadline", "8h", "--team", "nlp"),
)


@pytest.mark.parametrize("kind", ["command", "file"])
def test_options_say_all_that_a_short_job_needs(gpubroker: Run, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("run: x\nteam: other\nresources: {gpus: H100, infra: aws}\nmax_cost: $9\n")
    given = [str(file)] if kind == "file" else ["--", "x"]
    done = gpubroker("plan", *OPTIONS, *given)
    job = done.json["job"]
    assert (job["machines"], job["nodes"], job["max_duration"]) == (["L4:2"], 2, 10800)
    assert (done.json["max_cost"], done.json["deadline"] is None) == ("4.00", False)
    reasons = {each["reason"] for each in done.json["reasons"]}
    assert reasons >= {"wrong_provider", "wrong_accelerator"}, "those of the file would reject no sandbox offer"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("plan", "--"), "nothing follows `--`"),
        (("plan", "job.yaml", "--", "x"), "both a job file (job.yaml) and a command"),
        (("submit", "--workdir", "."), "no job given"),
        (("submit", "--env", "NOT_SET_ANYWHERE", "--", "x"), "NOT_SET_ANYWHERE has no value in your shell"),
        (("submit", "--env", "1A=2", "--", "x"), "not starting with a digit; got '1A'"),
        (("plan", "--gpu", "H10O", "--", "x"), "did you mean 'H100'?"),
        (("plan", "--name", "a b", "--", "x"), "--name: expected letters, digits"),
        (("plan", "--max-cost", "much", "--", "x"), "--max-cost: expected"),
        *(
            (("plan", f"--max-cost={rest}", "--", "x"), "hint: in a shell, write 4 or '$4'")
            for rest in ("", "00", ".50")  # of $5, $900, $2.50
        ),
        (("plan", "."), "hint: it is a folder without job files"),
        (("submit", "--workdir", "nowhere", "--yes", "--", "x"), "--workdir: there is no folder nowhere"),
        (("plan", "--max-duration", "12", "--", "x"), "--max-duration: expected"),
        (("plan", "--deadline", "yesterday", "--", "x"), "--deadline: expected"),
        (("submit", "--memory", "lots", "--", "x"), "--memory: expected"),
        (("submit", "--cpus", "-1", "--", "x"), "--cpus: must not be negative; expected"),
        (("submit", "--nodes", "0", "--", "x"), "--nodes: expected 1 or more"),
        (("plan", "--region", "a b", "--", "x"), "--region: expected"),
    ],
)
def test_what_does_not_go_together(gpubroker: Run, arguments: tuple[str, ...], expected: str) -> None:
    done = gpubroker(*arguments)
    assert done.code == 2
    assert expected in done.err
    assert "this job file" not in done.err, "the mistake is on the command line"


def test_variables_and_the_name_go_before_the_file(
    gpubroker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_SHELL", "yes")
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nenvs: {A: }\nresources: {cpus: 1}\nfile_mounts: {/x: 's3://$A-$FROM_SHELL'}\n")
    assert "envs.A: has no value" in gpubroker("plan", str(path)).err
    done = gpubroker("plan", str(path), "--json", "--name", "renamed", "--env", "A=b=c", "--env", "FROM_SHELL")
    assert done.json["job"]["name"] == "renamed"


def test_a_plan_names_the_secrets_that_are_not_exported(
    gpubroker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERE", "x")
    path = tmp_path / "job.yaml"
    path.write_text('run: x\nsecrets: {THERE: null, GONE: null, OPTIONAL: ""}\n')
    notes = gpubroker("plan", str(path), "--json").json["notes"]
    assert [note for note in notes if note.endswith("secrets not in the environment: GONE")]


def notes_of(gpubroker: Run, tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "job.yaml"
    path.write_text(f"run: x\n{text}\n")
    document = gpubroker("plan", str(path), "--json").json
    return [*document["notes"], *document["remarks"]]


def test_a_provider_that_nobody_knows_is_named_with_the_nearest(gpubroker: Run, tmp_path: Path) -> None:
    notes = notes_of(gpubroker, tmp_path, "resources: {infra: awss, accelerators: 'H100:8'}")
    told = "warning: no provider 'awss' is known here; did you mean 'aws'?"
    assert told in notes
    _, second, *rest = gpubroker("plan", str(tmp_path / "job.yaml")).out.splitlines()
    assert second == told, "before the offers that are rejected for other reasons"
    assert told not in rest
    known = notes_of(gpubroker, tmp_path, "resources: {infra: 'aws/us-*', accelerators: 'H100:8'}")
    assert not any("is known here" in note for note in known)


def test_a_plan_says_that_spot_is_left_out_and_what_changes_it(gpubroker: Run, tmp_path: Path) -> None:
    said = "spot is off because the job has no `checkpoint:`"
    assert any(note.startswith(said) for note in notes_of(gpubroker, tmp_path, "resources: {accelerators: L4}"))
    for more in ("resources: {use_spot: true}", "checkpoint: {every: 1h}"):
        assert not any(note.startswith(said) for note in notes_of(gpubroker, tmp_path, more))


@pytest.mark.skipif(CPUS < 2, reason="a machine with one CPU gives all of it")
def test_a_plan_says_how_many_cpus_a_job_gets_that_does_not_name_them(gpubroker: Run, tmp_path: Path) -> None:
    said = f"the job gets the CPUs of the machine's {CPUS:g} that are free when it starts (OMP_NUM_THREADS)"
    assert any(note.startswith(said) for note in notes_of(gpubroker, tmp_path, ""))
    assert not any("OMP_NUM_THREADS" in note for note in notes_of(gpubroker, tmp_path, "resources: {cpus: 1}"))
    for resources, words in (("", ", with the CPUs that are free when it starts\n"), ("resources: {cpus: 1}", "\n")):
        (tmp_path / "job.yaml").write_text(f"run: x\n{resources}\n")
        assert f"costs are estimates{words}" in gpubroker("plan", str(tmp_path / "job.yaml")).out


def test_a_plan_says_that_a_disk_of_unknown_price_counts_at_an_upper_bound(gpubroker: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    for tier, words in (("high", ", with disks of unknown price at an upper bound of $0.19/h; "), ("medium", "; ")):
        path.write_text(
            f"run: x\nresources: {{accelerators: 'H100:8', infra: aws/us-east-1, disk_tier: {tier}, disk_size: 256}}\n"
        )
        assert f"costs are estimates{words}" in gpubroker("plan", str(path)).out


def test_data_of_unknown_size_or_place_is_not_moved_for_nothing(gpubroker: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    machine = "run: x\nresources: {accelerators: 'H100:8', infra: aws/us-east-1, disk_size: 100}\n"
    mount, size = "file_mounts: {/d: 's3://bucket'}", "size: 100GB"
    for data, moving, note in (
        ("{location: azure/westeurope}", 9.34, "is priced for full disks, 107 GB"),
        ("{size: 100GB}", 14.7, "is priced at the highest rate"),
        ("{location: aws/us-east-1}", 0, ""),
        (f"{{{size}, mounts: {{/d: gcp/europe-west4}}}}\n{mount}", 12.0, ""),
        (f"{{{size}, location: aws/us-east-1, mounts: {{/d: gcp/europe-west4}}}}\n{mount}", 12.0, ""),
        (f"{{mounts: {{/d: gcp/europe-west4}}}}\n{mount}", 12.88, "is priced for full disks, 107 GB"),
        (f"{{{size}, location: aws/us-east-1}}\n{mount}", 0, ""),
        (f"{{sensitive: true}}\n{mount}", 15.78, "at the highest rate"),
        (f"{{}}\n{mount}", 15.78, "is priced for full disks, 107 GB"),
        ("{sensitive: true}", 0, "size and location of the data are unknown"),
        ("{mounts: {/d: azure/eastus}}\nfile_mounts: {/d: 's3://b', /e: 's3://c'}", 15.78, "at the highest rate"),
    ):
        path.write_text(f"{machine}data: {data}\n")
        plan: Any = gpubroker("plan", str(path), "--json").json
        best = [*plan["placements"], *plan["estimate"]][0]
        assert sum(float(term["amount"]) for term in best["terms"] if "data" in term["name"]) == pytest.approx(
            moving, abs=0.01
        )
        assert note in gpubroker("plan", str(path)).out.replace("\n", " ")


def test_a_part_that_there_cannot_be_is_refused_with_the_price_of_a_whole_card(gpubroker: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nresources: {accelerators: 'L4:0.7'}\n")
    gpubroker("plan", "--", "x")  # from now on the store has prices
    for given in (("--gpu", "L4:0.7", "--", "x"), (str(path),)):
        done = gpubroker("plan", *given)
        assert done.code == 2
        assert "0.7 of a card cannot be requested: write `L4:1`" in done.err
        assert "hint: cheapest known: L4:1 for $0.71 an hour at gcp/us-east1" in done.err


def test_a_part_that_nobody_offers_is_refused_with_the_whole_card_and_its_price(gpubroker: Run) -> None:
    told = "`accelerators: L4:1` under `resources:`; no such part is offered; a whole card costs $0.70"
    planned = gpubroker("plan", "--gpu", "L4:0.25", "--", "x")
    assert (planned.code, "L4-1of4:1 or L4-1of3:1 or L4-1of2:1" in planned.out) == (4, True)
    assert told in " ".join(planned.out.split())
    submitted = gpubroker("submit", "--gpu", "L4:0.25", "--yes", "--", "x")
    assert submitted.code == 4
    assert told in " ".join(submitted.out.split())


def test_what_cannot_be_started_here_is_estimated(gpubroker: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nresources: {accelerators: 'H100:8'}\nwork: 10h\n")
    done = gpubroker("plan", str(path))
    assert done.code in (3, 4)
    assert "Estimate only: no job can be started there with the present setup." in done.out
    assert "missing for jobs on " in done.out
    document = gpubroker("plan", str(path), "--json").json
    assert document["placements"] == []
    assert document["estimate"][0]["expected_cost"]


def test_an_estimate_says_its_order_and_leaves_out_what_a_policy_denies(gpubroker: Run, tmp_path: Path) -> None:
    file, policy = tmp_path / "job.yaml", tmp_path / "policy.yaml"
    file.write_text("run: x\nresources: {accelerators: H100:8}\n")
    rates = [
        float(one["rate_per_hour"]) for one in gpubroker("plan", file, "--limit", "100", "--json").json["estimate"]
    ]
    assert "would match if the setup allowed it" in (shown := gpubroker("plan", file).out)
    assert "ranked by the price of a useful hour" in " ".join(shown.split())
    cap = min(rates) / 8 + 0.01
    policy.write_text(f"version: 1\nguardrails: [{{name: dear, max_price_per_gpu_hour: ${cap:.2f}}}]\n")
    assert gpubroker("policy", "apply", policy, "--yes").code == 0
    judged = gpubroker("plan", file, "--limit", "100", "--json").json
    assert 0 < judged["estimated"] < len(rates)
    assert all(float(one["rate_per_hour"]) <= 8 * cap + 0.04 for one in judged["estimate"])
    policy.write_text("version: 1\nguardrails: [{name: dear, max_price_per_gpu_hour: $0.01}]\n")
    assert gpubroker("policy", "apply", policy, "--yes").code == 0
    denied = gpubroker("plan", file, "--json").json
    assert (denied["estimated"], "denied_by_policy" in {each["reason"] for each in denied["reasons"]}) == (0, True)


def test_a_limit_that_is_too_short_for_the_work_is_a_mistake(gpubroker: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("run: x\nresources: {cpus: 1}\nwork: 10h\nmax_duration: 2h\n")
    for command in ("plan", "submit"):
        done = gpubroker(command, str(path), *(["--yes"] if command == "submit" else []))
        assert done.code == 2
        assert "the job is stopped after 2 h, but its `work` takes at least 10" in done.out + done.err
