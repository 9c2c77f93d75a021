"""Which capacity types come first, and for whom it is another order."""

import pytest

from broker.core.errors import InvalidInput
from policies.loader import load
from tests.contracts.rule_contract import job

TEXT = """\
version: 1
capacity:
  order: [owned, reserved, spot, on_demand]
  exceptions:
    - {scope: {workload: inference}, order: [reserved, on_demand]}
    - {scope: {team: "n*"}, order: [spot]}
"""


@pytest.mark.parametrize(
    ("said", "order"),
    [
        ({"team": "vision"}, ("owned", "reserved", "spot", "on_demand")),
        ({"team": "nlp"}, ("spot",)),
        ({"team": "nlp", "workload": "inference"}, ("reserved", "on_demand")),
    ],
    ids=["everybody", "a team", "the first that is about it"],
)
def test_the_first_exception_that_is_about_a_job_holds(said: dict[str, str], order: tuple[str, ...]) -> None:
    assert load({"a.yaml": TEXT}).capacity_order(job(**said)) == order


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ("{}", "is empty"),
        ("{order: []}", "each once"),
        ("{order: [spot], exceptions: []}", "is empty"),
        ("{order: [spot, spot]}", "each once"),
        ("{exceptions: [{scope: {user: ann}, order: [spot]}]}", "a capacity order depends on the job"),
        ("{exceptions: [{scope: {}, order: [spot]}]}", "a capacity order depends on the job"),
        ("{exceptions: [{scope: {team: nlp}, order: []}]}", "each once"),
        ("{wait_for_paid: 2}", "unit"),
    ],
)
def test_what_makes_no_sense_is_refused(capacity: str, said: str) -> None:
    with pytest.raises(InvalidInput) as found:
        load({"a.yaml": f"version: 1\ncapacity: {capacity}\n"})
    assert said in found.value.problems[0].message
