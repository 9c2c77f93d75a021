"""Job files as results, and what a submission over the network needs to know beforehand."""

from __future__ import annotations

from pathlib import Path

from broker.app.results.values import Result


class SubmissionTerms(Result):
    """``pool``: the caller's folder for uploads; ``max_snapshot``: the most bytes of a job's files; ``secrets_key``:
    the public key (X25519, base64) for which secrets are encrypted, null if this server takes none."""

    pool: str
    max_snapshot: int
    secrets_key: str | None


class JobFileText(Result):
    """A submitted job as the text of a job file (YAML), without secrets."""

    id: str
    job_file: str


class WrittenJobFile(Result):
    """A job file that was written on this machine, and its text (YAML)."""

    file: Path
    text: str
