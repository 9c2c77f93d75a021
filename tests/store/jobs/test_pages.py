"""Pages of jobs."""

from datetime import UTC, datetime

from broker.store import Store
from broker.store.jobs.job_rows import JobListFilter
from tests.past import fill
from tests.store.work import statements_work

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_open_jobs_of_a_team_are_found_without_reading_those_that_ended(store: Store) -> None:
    running = fill(store, NOW, closed=500, running=1, templates=1)  # all of one team
    wanted = JobListFilter(states=("launching", "running"), visible=["team-0"])
    with statements_work(store) as work, store.reading() as look:
        found = look.job_page(wanted, after=None, limit=10)
        asking = look.unclosed({"team-0"})
    assert [view.id for view in found.views] == [view.id for view in asking] == running
    assert work.done < 500, "less than an instruction for each job that ended"
