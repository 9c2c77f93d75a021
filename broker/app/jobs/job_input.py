"""A job as its submitter gives it: a job file, or a command with options."""

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from broker.app.jobs.snapshots import resolve_paths, run_git
from broker.core.documents import MAX_BYTES, print_document
from broker.core.errors import InvalidInput, closest
from broker.core.job.file import parse_job, parse_jobs
from broker.core.job.file.reading import JobOverrides
from broker.core.job.file.schema import Repository, pin, repository_of_setup
from broker.core.job.foreign import convert, format_name
from broker.core.job.foreign.conversion import Conversion
from broker.core.job.jobs import Job


def read_job(path: Path, now: datetime, overrides: JobOverrides | None = None) -> Job:
    """The job in a file, with ``overrides`` applied. ``now`` (UTC): the time that relative dates count from. Raises
    `InvalidInput` with every finding, also for a file that cannot be read."""
    text = _read_bytes(path)
    job = parse_job(text, file=str(path), now=now, overrides=overrides or JobOverrides())
    return resolve_paths(job, path.parent, str(path))


def read_jobs(path: Path, now: datetime, overrides: JobOverrides | None = None) -> list[Job]:
    """The jobs in a file of one or several documents, in their order; as `read_job` otherwise."""
    jobs = parse_jobs(_read_bytes(path), file=str(path), now=now, overrides=overrides)
    return [resolve_paths(job, path.parent, str(path)) for job in jobs]


def convert_file(path: Path) -> Conversion:
    """The job file that a file of another program becomes. Raises `InvalidInput` for one that cannot be converted."""
    conversion = convert(_content(path).decode(errors="replace"), str(path))
    parse_job(print_document(conversion.job), file=str(path), now=datetime.now(UTC))
    return conversion


def _read_bytes(path: Path) -> bytes:
    text = _content(path)
    if (kind := format_name(text.decode(errors="replace"))) is not None:
        command = f"`gpubroker init --from {shlex.quote(str(path))}`"
        raise InvalidInput(f"this is {kind}; {command} writes a job file", where=str(path))
    return text


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)  # one byte more than allowed shows that the file is too large
    except OSError as error:
        raise InvalidInput(
            f"cannot be read: {error.strerror}", where=str(path), hint=_similar_file_hint(path)
        ) from error


def _similar_file_hint(path: Path) -> str:
    """A hint that names a job file of that folder, with a similar name; empty if there is none."""
    folder = path if path.is_dir() else path.parent
    try:
        names = sorted(sibling.name for sibling in folder.iterdir() if sibling.suffix in (".yaml", ".yml"))
    except OSError:
        return f"there is no folder {path.parent}" if not path.parent.exists() else ""
    if path.is_dir():
        return f"it is a folder; give a file in it: {path / names[0]}" if names else "it is a folder without job files"
    match = closest(path.name, names)
    return f"did you mean {path.with_name(match)}?" if match and match != path.name else ""


def job_of_command(command: Sequence[str], folder: Path, now: datetime, overrides: JobOverrides) -> Job:
    """A job that runs ``command`` in ``folder``. A single word is a shell command line; several words are passed on
    as they are. Raises `InvalidInput`."""
    if not folder.is_dir():
        hint = f"make it: mkdir -p {shlex.quote(str(folder))}"
        raise InvalidInput(f"there is no folder {folder}", where="--workdir", hint=hint)
    run = command[0] if len(command) == 1 else shlex.join(command)
    program = Path((command[0].split() or [""])[0]).stem
    name = overrides.name or re.sub(r"[^A-Za-z0-9._-]+", "-", program).strip("-._")[:63]
    text = print_document({"name": name or "command", "workdir": ".", "run": run})
    where = "command line"
    return resolve_paths(parse_job(text, file=where, now=now, overrides=overrides), folder, where)


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_GIT_TIMEOUT = 30.0  # seconds
_HELPER = '!f() { echo username=x-access-token; echo "password=$GIT_TOKEN"; }; f'


def pin_commit(job: Job) -> tuple[Job, str]:
    """The job with the present commit of its repository, which every attempt then fetches; and a note on that, empty
    for a job without a repository or with a commit. If the repository cannot be queried from here, for example without
    its key, the job is unchanged and the note says so. Runs `git`; not for jobs from another machine."""
    repository = repository_of_setup(job.setup)
    if repository is None or job.setup is None:
        return job, ""
    if repository.ref is not None and _COMMIT.fullmatch(repository.ref):
        return job, ""
    ref_name = repository.ref or "its default branch"
    # Only a token that the job requests: another person's job file may name any server.
    commit, reason = _look_up_commit(repository, with_token="GIT_TOKEN" in os.environ and "GIT_TOKEN" in job.secrets)
    if commit is None:
        return (
            job,
            f"{repository.url}: {ref_name} could not be resolved from here ({reason}): each attempt fetches its "
            "newest commit.",
        )
    setup = pin(job.setup, repository, commit)
    return job.model_copy(update={"setup": setup}), f"Git: {repository.url}, commit {commit[:10]} of {ref_name}."


def _look_up_commit(repository: Repository, *, with_token: bool) -> tuple[str | None, str]:
    """The commit, or None with the reason."""
    token = ["-c", f"credential.helper={_HELPER}"] if with_token and repository.url.startswith("https://") else []
    ref = repository.ref or "HEAD"
    words = [*token, "ls-remote", "--quiet", "--", repository.url, ref, f"{ref}^{{}}"]
    environment = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **os.environ}
    try:
        process = run_git(*words, environment=environment, timeout=_GIT_TIMEOUT)
    except FileNotFoundError:
        return None, "there is no program `git`"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "no answer in time" if isinstance(error, subprocess.TimeoutExpired) else str(error)
    if process.returncode:
        return None, (process.stderr.strip().splitlines() or ["git failed"])[-1][:200]
    cells = [line.partition("\t") for line in process.stdout.splitlines()]
    rows = {name: commit for commit, _, name in cells}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}", f"refs/tags/{ref}", f"{ref}^{{}}", ref):
        if _COMMIT.fullmatch(rows.get(name, "")):
            return rows[name], ""
    return None, f"it has no branch or tag {ref}"
