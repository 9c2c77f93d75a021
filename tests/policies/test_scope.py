from typing import Any

import pytest

from broker.core.job.jobs import Workload
from policies.scope import Scope
from tests.contracts.rule_contract import action, job, live

ANN = action(user="ann", job=job(project="chat", workload=Workload.BATCH, environment="production"))


@pytest.mark.parametrize(
    ("said", "covered"),
    [
        ({}, True),
        ({"team": "nlp"}, True),
        ({"team": ["vision", "nl?"]}, True),
        ({"team": "NLP"}, False),
        ({"project": "chat*"}, True),
        ({"project": "search"}, False),
        ({"workload": "batch"}, True),
        ({"workload": ["training", "inference"]}, False),
        ({"user": "ann"}, True),
        ({"user": "an"}, False),
        ({"environment": "prod*"}, True),
        ({"environment": "staging"}, False),
        ({"team": "nlp", "user": "bob"}, False),
        ({"team": "nlp", "project": "chat", "workload": "b*", "user": "a*", "environment": "*"}, True),
    ],
)
def test_all_that_is_said_must_match(said: dict[str, Any], covered: bool) -> None:
    scope = Scope.model_validate(said)
    running = live(8, user="ann", project="chat", workload="batch", environment="production")

    assert scope.covers(ANN) is covered
    assert scope.counts(running) is covered


@pytest.mark.parametrize("name", ["team", "project", "environment"])
def test_what_a_job_does_not_say_is_in_no_scope(name: str) -> None:
    nameless = action(job=job(team=None))

    assert not Scope.model_validate({name: "*"}).covers(nameless)
    assert Scope().covers(nameless)
