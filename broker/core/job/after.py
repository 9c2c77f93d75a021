"""Which jobs a job comes after, and which of their results it uses: the edges of a graph of jobs."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class When(StrEnum):
    """The required state of the earlier job: succeeded, or ended."""

    SUCCEEDED = "succeeded"
    ENDED = "ended"


class Predecessor(BaseModel):
    """A job that comes before. ``job``: its name or id in a job file, its id from the submission on.

    ``inputs``: which of its results the job finds in ``$GPUBROKER_INPUT_DIR/<folder>``: paths, or patterns of paths.
    ``folder``: the job as the file names it, set at submission. ``tasks``: of an array the numbers of its tasks, by
    the array that ran them last (a retry runs a part of them), set at submission; the results of each are in a folder
    named by its number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    job: str
    when: When = When.SUCCEEDED
    inputs: tuple[str, ...] = ()
    folder: str = ""
    tasks: dict[str, tuple[int, ...]] = Field(default_factory=dict)
