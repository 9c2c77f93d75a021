"""The assumptions in force: the table, with the values that `assumptions:` of the active policies override.

Measured speeds of finished runs of this store, in place of assumed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from broker.app.finished_runs import finished_runs, peaks
from broker.core.errors import POLICY_FILE, InvalidInput, UnknownName
from broker.economics.assumptions import DEFAULTS, Assumptions, override, table
from broker.ledger.finops.accuracy import measured_speeds, model_speeds, served_speeds
from broker.store import is_missing

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.store.jobs.reader import StoreReader


SECTION = "assumptions"


def load_assumptions(store_url: str, broker: Callable[[], Broker]) -> Assumptions:
    """The assumptions of the policies in force; the defaults without a store. Raises InvalidInput as
    `assumptions_from_files`."""
    if is_missing(store_url):
        return DEFAULTS
    with broker().store.reading() as reader:
        return active_assumptions(reader)


def active_assumptions(reader: StoreReader) -> Assumptions:
    """The assumptions of the policies in force at that view of the store. Raises InvalidInput as
    `assumptions_from_files`."""
    version = reader.active_policy()
    return assumptions_from_files(version.files if version else {})


def assumptions_from_files(files: Mapping[str, str]) -> Assumptions:
    """The assumptions of policy files (text by name), else the defaults. Raises InvalidInput, with the position of
    each problem, for the first file with unknown names, invalid values, or values that contradict an earlier file."""
    assumptions, first_values = DEFAULTS, dict[str, tuple[str, object]]()
    for file, text in sorted(files.items()):
        if SECTION not in text:
            continue  # most files have none, and reading YAML is slow
        from broker.core.documents import read_document  # importing it is slow, too

        document = read_document(text, file=file, kind=POLICY_FILE)
        section, problems = document.data.get(SECTION), []
        if not isinstance(section, Mapping):
            continue  # none, or a mistake of form that the policy loader reports
        for name, value in section.items():
            position = f"{file}:{document.problem((SECTION, name), '').line}"
            earlier_place, earlier_value = first_values.setdefault(name, (position, value))
            try:
                if earlier_value != value:
                    raise InvalidInput(f"contradicts {earlier_place}: {value!r} here, and {earlier_value!r} there")
                assumptions = override({name: value}, base=assumptions)
            except (InvalidInput, UnknownName) as error:
                message = error.message.removeprefix(f"{name}: ") + (f"; {error.hint}" if error.hint else "")
                is_unknown = isinstance(error, UnknownName)
                problems.append(document.problem((SECTION, name), message, at_key=is_unknown))
        if problems:
            document.refuse(problems)
    return assumptions


@dataclass(frozen=True, slots=True)
class ListedAssumption:
    """A row: ``value``: in force, null where it follows from other inputs; ``changed``: it is not the default."""

    name: str
    value: Any
    unit: str
    range: str
    subject: str
    source: str
    changed: bool


@dataclass(frozen=True, slots=True)
class AssumptionList:
    """The rows, in the order of their subjects."""

    assumptions: tuple[ListedAssumption, ...]


def list_assumptions(assumptions: Assumptions, subject: str | None = None) -> AssumptionList:
    """The rows about the subject, or all. Raises `UnknownName`."""
    rows = table()
    subjects = dict.fromkeys(row.subject for row in rows.values())
    if subject is not None and subject not in subjects:
        raise UnknownName("subject", subject, subjects)
    return AssumptionList(
        tuple(
            ListedAssumption(
                name,
                value := getattr(assumptions, name),
                row.unit,
                str(row.range),
                row.subject,
                row.source,
                value != getattr(DEFAULTS, name),
            )
            for name, row in rows.items()
            if subject in (None, row.subject)
        )
    )


MEASUREMENT_PERIOD = timedelta(days=90)


def with_measurements(reader: StoreReader, assumptions: Assumptions, now: datetime) -> Assumptions:
    """The assumptions with figures that runs of the 90 days before ``now`` (UTC) measured, by accelerator: MFU (also
    by size of the model, for training and inference), of runs whose job file names the model and whose program reported
    tokens; the tokens per second of serving; interruptions of spot machines per 1,000 hours; USD paid per GPU-hour.
    Unchanged if nothing was measured."""
    runs = finished_runs(reader, now - MEASUREMENT_PERIOD, now)
    speeds = measured_speeds(runs, peaks())
    mfu = tuple((speed.accelerator, speed.mfu, speed.mfu_runs) for speed in speeds if speed.mfu is not None)
    interruptions = tuple(
        (speed.accelerator, speed.interruptions_per_1000_hours, speed.spot_runs)
        for speed in speeds
        if speed.interruptions_per_1000_hours is not None
    )
    prices = tuple((speed.accelerator, speed.usd_per_gpu_hour, speed.runs) for speed in speeds)
    if not prices:
        return assumptions
    models = tuple(
        (speed.accelerator, speed.parameters, speed.trains, speed.share, speed.runs)
        for speed in model_speeds(runs, peaks())
    )
    served = tuple(
        (speed.accelerator, speed.parameters, speed.tokens_per_second, speed.generated_share, speed.runs)
        for speed in served_speeds(runs)
    )
    return replace(
        assumptions, measured_mfu=mfu, measured_models=models, measured_served=served,
        measured_interruptions=interruptions,
        measured_price=prices,
    )  # fmt: skip
