"""A Git repository as the working folder: its files are there when the job's own setup begins."""

import os
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.file.schema import Repository, pin, repository_of_setup, unpin

NOW = datetime(2026, 11, 25, tzinfo=UTC)
GIT = {
    "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with `one` on its branch and `two` on the tag v2."""
    folder = tmp_path_factory.mktemp("it's origin")
    script = (
        "git init -q -b main . && echo 1 > one && git add . && git commit -qm 1"
        " && git checkout -qb two && echo 2 > two && git add . && git commit -qm 2 && git tag v2"
        " && git checkout -q main"
    )
    subprocess.run(["bash", "-c", script], cwd=folder, env=GIT, check=True)
    return folder


def fetched(repository: Repository, folder: Path) -> set[str]:
    script = repository.fetch_commands() * 2 + "ls"
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=GIT, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_files_are_fetched_and_again_without_harm(origin: Path, tmp_path: Path) -> None:
    assert fetched(Repository(f"file://{origin}"), tmp_path) == {"one"}
    assert fetched(Repository(f"file://{origin}", "v2"), tmp_path) == {"one", "two"}


def test_a_commit_once_looked_up_is_fetched_whatever_the_branch_shows_later(origin: Path, tmp_path: Path) -> None:
    """By the commit, and by the branch where the server gives no single commit."""
    git = ["git", "-C", str(origin)]
    commit = subprocess.run([*git, "rev-parse", "main"], env=GIT, check=True, capture_output=True, text=True).stdout
    one = Repository(f"file://{origin}", "two")
    setup = one.fetch_commands() + "echo mine\n"
    assert repository_of_setup(setup) == one
    of_now = pin(setup, one, commit.strip())
    assert of_now.endswith("echo mine\n")
    assert repository_of_setup(of_now) is None, "looked up already"
    assert repository_of_setup("echo mine\n") is None
    assert [unpin(text) for text in (of_now, setup, "echo mine\n", None)] == [setup, setup, "echo mine\n", None]
    for number, script in enumerate((of_now, of_now.replace("--depth 1", "--no-such-option"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = subprocess.run(
            ["bash", "-c", script * 2 + "ls"], cwd=folder, env=GIT, check=True, capture_output=True, text=True
        )
        assert done.stdout.split() == ["mine", "mine", "one"]


def test_a_token_is_handed_to_git_alone(origin: Path, tmp_path: Path) -> None:
    """The address that Git asks a password for gets it from the variable; it is in no argument and no file."""
    address = "https://example.invalid/a"
    script = Repository(address).fetch_commands().replace(address, shlex.quote(f"file://{origin}"))
    asks = script.replace("fetch --quiet --depth 1", "credential fill <<<$'protocol=https\\nhost=h\\n' ; git fetch")
    environment = GIT | {"GIT_TOKEN": "tok'en"}
    done = subprocess.run(
        ["bash", "-c", asks], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert "password=tok'en" in done.stdout, done.stderr


def test_a_repository_that_is_not_there_ends_the_setup(tmp_path: Path) -> None:
    script = Repository(f"file://{tmp_path}/none").fetch_commands() + "echo on"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=GIT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "none" in done.stderr


def test_it_is_fetched_before_the_own_setup() -> None:
    text = "workdir: {url: https://h/a/b.git, ref: $REF}\nenvs: {REF: main}\nsetup: make\nrun: ./x\n"
    job = parse_job(text, file="x", now=NOW)
    assert job.workdir is None
    assert job.setup == Repository("https://h/a/b.git", "main").fetch_commands() + "make"


@pytest.mark.parametrize(
    ("workdir", "said"),
    [
        ("{url: --upload-pack=x}", "expected the address of a Git repository"),
        ("{url: 'ssh://-oProxyCommand=x/y'}", "expected the address of a Git repository"),
        ("{url: 'https://h/a b'}", "expected the address of a Git repository"),
        ("{url: 'https://me:hunter2@h/a'}", "`--secret GIT_TOKEN`"),
        ("{url: https://h/a, ref: --force}", "ref: expected a branch"),
        ("{url: https://h/a, ref: 'a:b'}", "ref: expected a branch"),
        ("{url: https://h/a, ref: 12}", "in quotes if it is a number"),
        ("{url: https://h/a, branch: main}", "known: url, ref"),
        ("{ref: main}", "expected the address"),
        ("[a]", "expected a local folder"),
        ("''", "is empty"),
    ],
)
def test_what_is_no_repository_is_refused(workdir: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_job(f"workdir: {workdir}\nrun: x\n", file="x", now=NOW)
    assert said in "; ".join(problem.message for problem in caught.value.problems)


def test_a_token_goes_to_https_alone() -> None:
    assert "GIT_TOKEN" in Repository("https://example.com/a/b").fetch_commands()
    for url in ("http://example.com/a/b", "git@example.com:a/b", "ssh://example.com/a"):
        assert "GIT_TOKEN" not in Repository(url).fetch_commands()
