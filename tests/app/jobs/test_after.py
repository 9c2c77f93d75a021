"""The order in which a graph of jobs is submitted, and when a job may begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.jobs.predecessors import dependency_order
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.job.jobs import Job, Predecessor, When
from broker.reconciler.controllers.predecessors import PredecessorStates, predecessor_states


def job(name: str, *before: str) -> Job:
    return Job(name=name, run="true", after=tuple(Predecessor(job=one) for one in before))


def test_jobs_are_submitted_behind_those_that_they_come_after() -> None:
    found = dependency_order([job("c", "a", "b"), job("b", "a", "an-earlier-one"), job("a")])
    assert [one.name for one in found] == ["a", "b", "c"]


def test_jobs_that_wait_for_each_other_are_refused_with_their_names() -> None:
    with pytest.raises(InvalidInput) as caught:
        dependency_order([job("a", "c"), job("b", "a"), job("c", "b"), job("d")])
    told = caught.value.message.partition(": ")[2].split(" → ")
    assert (told[0], set(told)) == (told[-1], {"a", "b", "c"})
    with pytest.raises(InvalidInput, match="a → a"):
        dependency_order([job("a", "a")])
    with pytest.raises(InvalidInput, match="two jobs are called a"):
        dependency_order([job("a"), job("a")])


@given(st.lists(st.tuples(st.sampled_from(When), st.none() | st.sampled_from(JobState)), max_size=5))
def test_a_job_begins_when_all_before_it_have_ended_as_it_asks(told: list[tuple[When, JobState | None]]) -> None:
    before = [Predecessor(job=str(number), when=when) for number, (when, _) in enumerate(told)]
    found = predecessor_states(
        before, {str(number): state for number, (_, state) in enumerate(told) if state is not None}
    )
    bad = (JobState.FAILED, JobState.CANCELLED)
    fails = any(when is When.SUCCEEDED and state in bad for when, state in told)
    assert (found.failed is not None) == fails
    assert (found == PredecessorStates()) == (not fails and all(state is not None and state.final for _, state in told))
