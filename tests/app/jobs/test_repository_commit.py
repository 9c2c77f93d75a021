"""The commit of a repository is looked up once, at submission."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.app.jobs.job_input import pin_commit
from broker.core.job.file import parse_job
from broker.core.job.file.schema import unpin

NOW = datetime(2026, 11, 25, tzinfo=UTC)


def test_every_attempt_fetches_what_the_branch_was_at_submission(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (
        ["init", "-q", "-b", "main"],
        ["commit", "-q", "--allow-empty", "-m", "1"],
        ["tag", "-am", "v", "v1"],
    ):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    for ref in ("", "ref: main", "ref: v1"):
        text = f"run: echo\nworkdir: {{url: 'file://{tmp_path}', {ref}}}\nsetup: echo mine\n"
        job, said = pin_commit(parse_job(text, file="job.yaml", now=NOW))
        assert f"commit {commit[:10]}" in said
        assert job.setup is not None
        assert commit in job.setup
        assert job.setup.endswith("echo mine\n") or job.setup.endswith("echo mine")
        assert pin_commit(job) == (job, "")
        assert pin_commit(job.model_copy(update={"setup": unpin(job.setup)})) == (job, said)


def test_a_repository_that_cannot_be_asked_from_here_is_said(tmp_path: Path) -> None:
    text = f"run: echo\nworkdir: {{url: 'file://{tmp_path}/nothing'}}\n"
    job = parse_job(text, file="job.yaml", now=NOW)
    same, said = pin_commit(job)
    assert same == job
    assert "could not be resolved from here" in said
    assert "each attempt fetches its newest commit" in said


def test_a_server_gets_the_token_only_if_the_job_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "git"
    git.write_text('#!/bin/sh\necho "$@" >"$(dirname "$0")/asked"\nexit 1\n')
    git.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("GIT_TOKEN", "t")
    for secrets, given in (("", False), ("secrets: [GIT_TOKEN]\n", True)):
        text = f"run: echo\nworkdir: {{url: 'https://example.com/a'}}\n{secrets}"
        pin_commit(parse_job(text, file="job.yaml", now=NOW))
        assert ("credential.helper" in (tmp_path / "asked").read_text()) is given
