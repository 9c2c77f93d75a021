"""`session:` in a job file."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import SESSION_HOLD, Job, SessionPlan

NOW = datetime(2026, 11, 24, tzinfo=UTC)
HEAD = "name: dev\nrun: x\nresources: {cpus: 1}\n"


def read(text: str) -> Job:
    return parse_job(HEAD + text, file="dev.yaml", now=NOW)


def test_it_has_defaults_and_is_read_back_as_printed() -> None:
    short = read("session: {idle: 45m}\n")
    assert short.session == SessionPlan(idle=timedelta(minutes=45))
    full = read("session: {idle: 1h, at_most: 4h, jupyter: true}\n")
    assert full.session == SessionPlan(idle=timedelta(hours=1), at_most=timedelta(hours=4), jupyter=True)
    for job in (short, full):
        assert parse_job(print_job(job), file="x.yaml", now=NOW) == job


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("session: {idle: 0s}\n", "idle"),
        ("session: {idel: 1h}\n", "did you mean 'idle'"),
        ("session: {jupyter: sure}\n", "jupyter"),
        ("idle: 1h\n", "belongs under `session:`"),
        ("session: {idle: 1h}\narray: {range: 2}\n", "is for one job"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(text)
    assert any(said in str(problem) for problem in refused.value.problems)


def test_money_is_held_for_an_hour_at_a_time_of_sessions_alone() -> None:
    day = timedelta(days=1)
    assert read("session: {idle: 1h}\n").held_for(day) == SESSION_HOLD == timedelta(hours=1)
    assert read("session: {idle: 1h}\n").held_for(timedelta(minutes=9)) == timedelta(minutes=9)
    assert read("").held_for(day) == day
