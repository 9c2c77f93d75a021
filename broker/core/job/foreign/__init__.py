"""Job descriptions of other programs, as job files: Slurm scripts, Kubernetes Jobs, dstack tasks, `docker run`."""

import re
from collections.abc import Callable

from broker.core.errors import InvalidInput
from broker.core.job.foreign import docker, dstack, kubernetes, slurm
from broker.core.job.foreign.conversion import Conversion

# How to recognize each format (in a text, not in YAML, which may be invalid), its name, and what converts it.
_FORMATS: tuple[tuple[re.Pattern[str], str, Callable[[str, str], Conversion]], ...] = (
    (re.compile(r"^\s*#SBATCH\s", re.MULTILINE), "a Slurm script", slurm.convert),
    (re.compile(r"^apiVersion\s*:.*\n(?s:.*)^kind\s*:|^kind\s*:.*\n(?s:.*)^apiVersion\s*:", re.MULTILINE),
     "a Kubernetes manifest", kubernetes.convert),
    (re.compile(r"""^type\s*:\s*["']?(?:task|service|dev-environment)\b""", re.MULTILINE), "a dstack configuration",
     dstack.convert),
    (re.compile(r"^\s*(?:\$\s+)?(?:sudo\s+)?(?:docker|podman|nvidia-docker)\s+(?:container\s+)?run\s", re.MULTILINE),
     "a `docker run` command", docker.convert),
)  # fmt: skip


def format_name(text: str) -> str | None:
    """What the text is, in words; None if it is none of these formats, or a job file, whose command may be anything."""
    if re.search(r"^run\s*:", text, re.MULTILINE):
        return None
    return next((name for pattern, name, _ in _FORMATS if pattern.search(text)), None)


def convert(text: str, file: str) -> Conversion:
    """The job file of a text, and what it could not carry over. ``file`` is for messages and the job's name. Raises
    `InvalidInput` for a text that is none of these formats, or that its format does not allow."""
    name = format_name(text)
    for _, known, converter in _FORMATS:
        if known == name:
            return converter(text, file)
    raise InvalidInput(
        "no format that can be converted",
        where=file,
        hint="expected a script with #SBATCH lines, a Kubernetes Job, a dstack task or a `docker run` command;"
        " job files and SkyPilot's task files are submitted as they are",
    )
