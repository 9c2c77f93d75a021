"""The entries of the agent's journal as events: what happens on the machine. The broker observes or decides all other
events."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, AwareDatetime, Field, FiniteFloat, StringConstraints

from broker.core.records import Record, RecordOfKind


class Claimed(RecordOfKind):
    """An agent on the machine claimed the attempt: this one machine runs it, and no other. ``knows_standbys``: unlike
    an earlier version, it goes on while a later attempt stands by."""

    kind: Literal["claimed"] = "claimed"
    host: str = ""
    knows_standbys: bool = False


class StandsBy(RecordOfKind):
    """The machine of a standby is prepared: it would restore and run the command now, and waits for the handover."""

    kind: Literal["stands_by"] = "stands_by"


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


class Reading(Record):
    """The mean and the peak of ``samples`` samples."""

    samples: int = Field(ge=1)
    mean: FiniteFloat
    peak: FiniteFloat

    def __add__(self, other: "Reading") -> "Reading":
        samples = self.samples + other.samples
        mean = (self.mean * self.samples + other.mean * other.samples) / samples
        return Reading(samples=samples, mean=mean, peak=max(self.peak, other.peak))


ResourceUse = dict[str, Reading]
"""The use of a machine, by name; a name that is missing was not measured. Percent: ``gpu`` (the busiest accelerator),
``gpu_idle`` (samples with ``gpu`` below 5), ``gpu_waits_cpu`` and ``gpu_waits_disk`` (accelerator time without work
while the processors were saturated, or waited for disks), ``cpu`` (of the job's processors). GiB: ``gpu_memory`` (the
fullest accelerator), ``memory``. W: ``power`` (all accelerators). MB/s: ``disk_read``, ``network`` (received)."""


def add_use(use: Mapping[str, Reading], more: Mapping[str, Reading]) -> ResourceUse:
    """Both together."""
    return {**use, **{name: use[name] + reading if name in use else reading for name, reading in more.items()}}


class ResourcesUsed(RecordOfKind):
    """What the first machine of the attempt used since the last such event, about an hour ago, or since its begin."""

    kind: Literal["resources_used"] = "resources_used"
    figures: dict[Annotated[str, StringConstraints(max_length=64)], Reading] = Field(max_length=32)


Count = Annotated[int, Field(ge=0, le=10**18)]


class ServedModel(Record):
    """Tokens of a model (empty: the server does not name it): read, ``cached`` among them, and generated.
    ``input_ms``, ``output_ms``: the sum of all requests' milliseconds for reading and for generating, 0 where the
    server does not measure them."""

    model: Annotated[str, StringConstraints(max_length=1000)]
    input: Count
    cached: Count
    output: Count
    input_ms: Count = 0
    output_ms: Count = 0


def _merge(models: tuple[ServedModel, ...]) -> tuple[ServedModel, ...]:
    """One of each name: the agent may have masked or shortened several to the same one."""
    sums: dict[str, Counter[str]] = {}
    for model in models:
        sums.setdefault(model.model, Counter()).update(model.model_dump(exclude={"model"}))
    return tuple(ServedModel.model_validate({"model": name, **figures}) for name, figures in sums.items())


class TokensServed(RecordOfKind):
    """What the inference servers on the first machine counted in that time (UTC, within one hour), of which they worked
    on requests for ``busy_ms`` milliseconds. ``trouble``: why a port was not read."""

    kind: Literal["tokens_served"] = "tokens_served"
    since: AwareDatetime
    until: AwareDatetime
    busy_ms: Count
    models: Annotated[tuple[ServedModel, ...], Field(max_length=20), AfterValidator(_merge)]
    trouble: str = ""


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
    | StandsBy
    | Restored
    | CommandStarted
    | CheckpointSaved
    | CheckpointTrouble
    | CheckpointsMissing
    | OutputsSaved
    | OutputTrouble
    | MetricsReported
    | ResourcesUsed
    | TokensServed
    | NoticeTooShort
    | NoticeReceived
)

FROM_AGENT: tuple[type[RecordOfKind], ...] = get_args(AgentEvent)
