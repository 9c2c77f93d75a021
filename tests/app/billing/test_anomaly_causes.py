"""Is the job that causes an anomaly the first that is named? All jobs of simulated teams are in the ledger, and a
forgotten one that costs as much as a median day for three days. `pytest -s -m system` prints the share.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median

import pytest

from broker.app.billing.anomalies import spending_anomalies
from broker.app.wiring import Broker
from broker.core.values.clock import ManualClock
from broker.ledger.entries import Entry
from tests.actors import with_clock
from tests.focus_ledger import DAY, RUN, spent
from tests.ledger.finops.simulated_spending import poisson

START = datetime(2026, 9, 1, tzinfo=UTC)
BEGINS, LENGTH = 60, 3  # of the forgotten job, in days
OF_EACH = 8
USD = 2.5  # a GPU-hour
_Costs = Sequence[dict[int, float]]


def researchers(chance: random.Random) -> _Costs:
    often = chance.uniform(12, 40)
    return _made(chance, lambda day: often * (0.25 if day % 7 >= 5 else 1), 6, (1, 2, 4, 8))


def service(chance: random.Random) -> _Costs:
    """Four servers that are always there, beside a few jobs."""
    level = chance.uniform(50, 500)
    servers = [{day: level * max(chance.gauss(1, 0.05), 0.2) for day in range(BEGINS + LENGTH)} for _ in range(4)]
    return [*servers, *_made(chance, lambda day: 6, 8, (1, 2, 4))]


def large_runs(chance: random.Random) -> _Costs:
    """Runs of days on 16 to 64 GPUs: many an ordinary one costs more than the forgotten job."""
    return [*_made(chance, lambda day: 0.7, 48, (16, 32, 64)), *_made(chance, lambda day: 10, 5, (1, 2))]


@pytest.mark.system
def test_of_ten_jobs_that_cause_an_anomaly_nine_are_named_first(new_broker: Callable[[], Broker]) -> None:
    clock = ManualClock(START)
    broker = with_clock(new_broker(), clock)
    families = (researchers, service, large_runs)
    for family in families:
        for number in range(OF_EACH):
            chance = random.Random(f"causes/{family.__name__}/{number}")
            with broker.store.writing() as tx:
                tx.post(list(_entries(f"{family.__name__}-{number}", list(family(chance)))))
    named = dict[str, str]()
    for day in range(BEGINS, BEGINS + LENGTH):
        clock.advance(START + timedelta(days=day, hours=23, minutes=59) - clock.now())
        for one in spending_anomalies(broker):
            if one.running:
                named.setdefault(one.team, one.causes[0].job)
    found = {
        family.__name__: [job for team, job in named.items() if team.startswith(family.__name__)] for family in families
    }
    right = {family: sum(job.endswith("-forgotten") for job in jobs) for family, jobs in found.items()}
    print({family: f"{right[family]} of {len(jobs)} named first, of {OF_EACH}" for family, jobs in found.items()})
    assert sum(right.values()) >= 0.9 * len(named)
    assert len(named) >= 0.75 * OF_EACH * len(families)


def _made(chance: random.Random, begin: Callable[[int], float], hours: float, gpus: Sequence[int]) -> _Costs:
    """USD a day of each job. Their time is log-normal with that median; so many begin on a day."""
    days, found = BEGINS + LENGTH, list[dict[int, float]]()
    for day in range(-14, days):
        for _ in range(poisson(chance, begin(day))):
            at, left = day * 24 + chance.uniform(8, 20), hours * chance.lognormvariate(0, 0.9)
            usd, ends = chance.choice(gpus) * USD, at + min(left, 14 * 24)
            numbers = range(max(int(at // 24), 0), min(int(ends // 24) + 1, days))
            found.append(
                {number: usd * max(min(ends, number * 24 + 24) - max(at, number * 24), 0) for number in numbers}
            )
    return found


def _entries(team: str, jobs: list[dict[int, float]]) -> Iterator[Entry]:
    totals = [sum(costs.get(day, 0.0) for costs in jobs) for day in range(BEGINS)]
    more = median(totals[-28:])
    jobs.append({BEGINS + number: more for number in range(LENGTH)})
    for number, costs in enumerate(jobs, start=1):
        job = f"{team}-{'forgotten' if number == len(jobs) else number}"
        for day, usd in costs.items():
            since = START + day * DAY
            if usd >= 0.01:
                tags = replace(RUN, job_id=job, team=team)
                yield from spent(day, f"{usd:.2f}", since, since + DAY / 2, since + DAY / 2, tags=tags)
