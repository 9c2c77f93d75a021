"""The commit of the Git repository that a job fetches, looked up at submission by the submitter's own `git`."""

from __future__ import annotations

import os
import re
import subprocess

from broker.core.job.file.repository import Repository, of_setup, pinned
from broker.core.job.jobs import Job

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PATIENCE = 30.0  # seconds
_HELPER = '!f() { echo username=x-access-token; echo "password=$GIT_TOKEN"; }; f'


def with_commit(job: Job) -> tuple[Job, str]:
    """The job with the present commit of its repository, which every attempt then fetches; and a note on that, empty
    for a job without a repository or with a commit. If the repository cannot be queried from here, for example without
    its key, the job is unchanged and the note says so. Runs `git`; not for jobs from another machine."""
    one = of_setup(job.setup)
    if one is None or job.setup is None:
        return job, ""
    if one.ref is not None and _COMMIT.fullmatch(one.ref):
        return job, ""
    named = one.ref or "its first branch"
    # Only a token that the job requests: another person's job file may name any server.
    commit, why = _looked_up(one, with_token="GIT_TOKEN" in os.environ and "GIT_TOKEN" in job.secrets)
    if commit is None:
        return (
            job,
            f"{one.url}: {named} could not be looked up from here ({why}): each attempt fetches its newest commit.",
        )
    setup = pinned(job.setup, one, commit)
    return job.model_copy(update={"setup": setup}), f"Git: {one.url}, commit {commit[:10]} of {named}."


def _looked_up(one: Repository, *, with_token: bool) -> tuple[str | None, str]:
    """The commit, or None with the reason."""
    token = ["-c", f"credential.helper={_HELPER}"] if with_token and one.url.startswith("https://") else []
    ref = one.ref or "HEAD"
    command = ["git", *token, "ls-remote", "--quiet", "--", one.url, ref, f"{ref}^{{}}"]
    environment = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **os.environ}
    try:
        done = subprocess.run(  # noqa: S603  # the reader of job files has checked the address, which follows `--`
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False
        )
    except FileNotFoundError:
        return None, "there is no program `git`"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "no answer in time" if isinstance(error, subprocess.TimeoutExpired) else str(error)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["git failed"])[-1][:200]
    cells = [line.partition("\t") for line in done.stdout.splitlines()]
    rows = {name: commit for commit, _, name in cells}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}", f"refs/tags/{ref}", f"{ref}^{{}}", ref):
        if _COMMIT.fullmatch(rows.get(name, "")):
            return rows[name], ""
    return None, f"it has no branch or tag {ref}"
