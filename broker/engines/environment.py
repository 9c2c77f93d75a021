"""The variables of the broker's environment that a job on this machine gets.

The broker's environment holds cloud keys, database addresses and notification passwords. A job gets the variables
named here, its own ``envs:`` and its ``secrets:``; the agent, which uploads checkpoints, keeps the rest. This prevents
leaks into logs and child processes; it does not isolate the job from the user account that it runs under.
"""

import os
import shlex
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from broker.agent.environment import VISIBLE_VARIABLE

BASICS = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Variables that every shell expects."""


def _split_words(value: object) -> object:
    return tuple(shlex.split(value)) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_split_words)]
"""Words of a setting; an environment variable gives them as one string, split like a shell."""

_NAMES = frozenset(BASICS) | {
    "LD_LIBRARY_PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
}
# Settings of accelerators, of numeric libraries and of Conda: names without credentials.
_PREFIXES = ("CONDA_", "CUDA_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_", "TORCH_")


def agent_environment(secrets: Mapping[str, str], limits: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an agent on this machine: the broker's own, the variables that name the job's part of the
    machine (``limits``), the job's secrets, and the list of names that the agent may pass to the job's commands."""
    own = limits or {}
    names = [name for name in os.environ if name in _NAMES or name.startswith(_PREFIXES)]
    return {**os.environ, **own, **secrets, VISIBLE_VARIABLE: ",".join(sorted({*names, *own, *secrets}))}
