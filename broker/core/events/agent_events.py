"""The entries of the agent's journal as events: what happens on the machine. The broker observes or decides all other
events."""

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import Field, FiniteFloat, StringConstraints

from broker.core.records import Record, RecordOfKind


class Claimed(RecordOfKind):
    """An agent on the machine claimed the attempt: this one machine runs it, and no other."""

    kind: Literal["claimed"] = "claimed"
    host: str = ""


class PassedOver(Record):
    """A checkpoint that was not restored, and why."""

    checkpoint: str
    because: str


class Restored(RecordOfKind):
    """The newest checkpoint that verifies was restored (None: there was none; the job starts from the beginning)."""

    kind: Literal["restored"] = "restored"
    checkpoint: str | None
    step: int | None = None
    passed_over: tuple[PassedOver, ...] = ()


class CommandStarted(RecordOfKind):
    """The job's own command runs."""

    kind: Literal["command_started"] = "command_started"


class CheckpointSaved(RecordOfKind):
    """A checkpoint is durable: its manifest exists in the run folder."""

    kind: Literal["checkpoint_saved"] = "checkpoint_saved"
    checkpoint: str
    step: int | None = None
    size: int = 0
    seconds: float | None = None


class CheckpointTrouble(RecordOfKind):
    """A checkpoint could not be made durable; the last verified one stays. It is retried while the command runs."""

    kind: Literal["checkpoint_trouble"] = "checkpoint_trouble"
    because: str


class CheckpointsMissing(RecordOfKind):
    """The job declares a checkpoint every ``every`` seconds, and the attempt saved none while its command ran for
    ``seconds``. Recorded once, during the run or at its end (``ended``). ``unfinished``: contents of the checkpoint
    folder that are neither saved nor restored."""

    kind: Literal["checkpoints_missing"] = "checkpoints_missing"
    every: float
    seconds: float
    ended: bool = False
    unfinished: tuple[str, ...] = ()


class OutputsSaved(RecordOfKind):
    """The attempt is over, and its results are in the run folder: ``files`` of ``size`` bytes in all."""

    kind: Literal["outputs_saved"] = "outputs_saved"
    files: int
    size: int


class OutputTrouble(RecordOfKind):
    """Results could not be copied to the run folder; it is retried while the attempt lasts."""

    kind: Literal["output_trouble"] = "output_trouble"
    because: str


class MetricsReported(RecordOfKind):
    """Figures that the program reported, each the newest of its name: ``tokens`` in all since the job began, and its
    own (``loss``)."""

    kind: Literal["metrics_reported"] = "metrics_reported"
    step: int | None = None
    metrics: dict[Annotated[str, StringConstraints(max_length=64)], FiniteFloat] = Field(max_length=32)


class NoticeTooShort(RecordOfKind):
    """Recorded before any interruption: uploading a checkpoint took ``seconds``, longer than the time left after a
    preemption notice of ``source``, which precedes the end of the machine by ``notice_seconds``. After an interruption
    the job would resume from the checkpoint before the one saved on notice."""

    kind: Literal["notice_too_short"] = "notice_too_short"
    source: str
    notice_seconds: float
    checkpoint: str
    size: int
    seconds: float


class NoticeReceived(RecordOfKind):
    """The provider announced that it takes the machine back."""

    kind: Literal["notice_received"] = "notice_received"
    source: str
    terminates_at: datetime | None = None


AgentEvent = (
    Claimed
    | Restored
    | CommandStarted
    | CheckpointSaved
    | CheckpointTrouble
    | CheckpointsMissing
    | OutputsSaved
    | OutputTrouble
    | MetricsReported
    | NoticeTooShort
    | NoticeReceived
)

FROM_AGENT: tuple[type[RecordOfKind], ...] = get_args(AgentEvent)
