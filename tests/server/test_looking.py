"""What the reading routes answer: the documents of the command line, in pages, without what others' teams do."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.billing.budgets import budget_details
from broker.app.jobs import details, jobs
from tests.server.world import Company, submitted


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


def pages(world: Company, path: str, by: str, **parameters: Any) -> Iterator[Any]:
    """Every page of a list."""
    cursor: dict[str, str] = {}
    while True:
        document = world.get(path, by, **parameters, **cursor).json()
        yield document
        if document["next_cursor"] is None:
            return
        cursor = {"cursor": document["next_cursor"]}


def test_jobs_are_those_of_ones_teams_newest_first(seen_world: Company) -> None:
    assert ids(seen_world.get("/jobs", "vic")) == [seen_world.asking, seen_world.mine]
    assert ids(seen_world.get("/jobs", "otto")) == [seen_world.foreign]
    everything = [seen_world.nobodys, seen_world.foreign, seen_world.asking, seen_world.mine]
    assert ids(seen_world.get("/jobs", "adam")) == everything
    assert ids(seen_world.get("/jobs", "fay")) == everything, "finops sees all money"


def test_filters_only_narrow(seen_world: Company) -> None:
    assert ids(seen_world.get("/jobs", "vic", team="vision")) == []
    assert ids(seen_world.get("/jobs", "vic", user="otto")) == []
    assert ids(seen_world.get("/jobs", "vic", state="awaiting_approval")) == [seen_world.asking]
    assert ids(seen_world.get("/jobs", "adam", team="vision")) == [seen_world.foreign]


def test_a_misspelt_filter_is_refused_and_the_right_one_named(seen_world: Company) -> None:
    answer = seen_world.get("/jobs", "vic", stat="running")
    assert answer.status_code == 422
    assert "unknown parameter 'stat'; did you mean 'state'?" in answer.json()["detail"]
    assert seen_world.get("/overview", "vic", team="nlp").json()["hint"] == "this address takes no parameters"


def test_pages_hold_every_job_once_while_others_are_submitted(world: Company) -> None:
    more = [submitted(world.broker, f"more-{n}", "mia", "nlp") for n in range(4)]
    found = []
    for number, page in enumerate(pages(world, "/jobs", "vic", limit=2)):
        found += [job["id"] for job in page["jobs"]]
        if number == 0:
            submitted(world.broker, "late", "mia", "nlp")
    assert found == [*reversed(more), world.asking, world.mine]


@pytest.mark.parametrize("cursor", ["x", "e30", "WzEsMl0", "é", "WyJ4IiwieSJd"])
def test_a_cursor_that_this_server_never_wrote_is_refused(seen_world: Company, cursor: str) -> None:
    answer = seen_world.get("/jobs", "vic", cursor=cursor)
    assert (answer.status_code, answer.json()["where"]) == (422, "cursor")


def test_a_cursor_carries_no_right(seen_world: Company) -> None:
    cursor = seen_world.get("/jobs", "adam", limit=1).json()["next_cursor"]
    assert ids(seen_world.get("/jobs", "otto", cursor=cursor)) == [seen_world.foreign]


def test_a_job_is_the_document_of_the_command_line(seen_world: Company) -> None:
    view = jobs.find(seen_world.broker, seen_world.mine)
    expected = json.loads(details.history(seen_world.broker, view).model_dump_json(by_alias=True))
    answered = seen_world.get(f"/jobs/{seen_world.mine}", "vic").json()
    moves = {"budget_shares": [], "as_of": ""}  # with the clock: when it was looked at, from when on money is held
    assert answered | moves == expected | moves
    assert [one["held"] for one in answered["budget_shares"]] == [one["held"] for one in expected["budget_shares"]]
    attempts = seen_world.get(f"/jobs/{seen_world.mine}/attempts", "vic").json()["attempts"]
    assert [(one.pop("cost")["sandbox"], one.pop("steps_redone")) for one in attempts] == [("0.00", 0)]
    assert attempts == expected["attempts"]


def test_a_job_is_not_found_by_its_name_or_the_beginning_of_its_id(seen_world: Company) -> None:
    for reference in ("mine", seen_world.mine[:-1]):
        assert seen_world.get(f"/jobs/{reference}", "adam").status_code == 404


def test_output_has_an_end(seen_world: Company) -> None:
    assert seen_world.get(f"/jobs/{seen_world.mine}/logs", "vic").json() == {"id": seen_world.mine, "lines": []}
    assert seen_world.get(f"/jobs/{seen_world.mine}/logs", "vic", tail=5_001).status_code == 422
    assert seen_world.get(f"/jobs/{seen_world.mine}/logs", "vic", attempt=9).status_code == 422


def test_budgets_are_those_that_count_no_other_team(seen_world: Company) -> None:
    def seen(who: str) -> list[str]:
        return [one["id"] for one in seen_world.get("/budgets", who).json()["budgets"]]

    assert seen("vic") == ["nlp"]
    assert seen("otto") == ["vision"]
    assert seen("fay") == ["nlp", "vision", "both", "all"]
    (expected,) = budget_details(seen_world.broker, "nlp", by_day=True)
    told = seen_world.get("/budgets/nlp", "vic", by_day=True).json()
    for key in ("limit", "spent", "held", "left", "on_own", "rented"):  # the last hours of a month move held money on
        assert float(told[key]) == pytest.approx(float(expected.document()[key]), abs=0.01)
    assert [one["job"] for one in told["held_by_job"]] == [one.job for one in expected.held_by_job]
    assert len(told["days"]) == len(expected.days or ())
    for hidden in ("vision", "both", "all", "nothing"):
        refused = seen_world.get(f"/budgets/{hidden}", "vic")
        assert (refused.status_code, "vision" in refused.text) == (404, hidden == "vision")


def test_requests_for_approval_are_those_of_ones_teams(seen_world: Company) -> None:
    def asked(who: str) -> list[tuple[str, bool]]:
        return [(one["job"], one["mine"]) for one in seen_world.get("/approvals", who).json()["requests"]]

    assert asked("vic") == [(seen_world.asking, False)]
    assert asked("apple") == [(seen_world.asking, True)]
    assert asked("otto") == []
    assert asked("fay") == [(seen_world.asking, False)]


def test_the_queue_counts_no_others(world: Company) -> None:
    for document in (world.get("/queue", "otto").json(), world.get("/queue", "vic").json()):
        turns = [one["turn"] for one in document["waiting"]]
        assert turns == list(range(1, len(turns) + 1))
    assert {one["team"] for one in world.get("/queue", "otto").json()["waiting"]} <= {"vision"}
    assert world.get("/queue", "adam").json()["running"] >= world.get("/queue", "vic").json()["running"]


def listed(world: Company) -> list[Any]:
    return [offer for page in pages(world, "/offers", "vic", limit=200) for offer in page["offers"]]


def test_offers_come_in_pages_the_cheapest_that_is_to_be_had_first(seen_world: Company) -> None:
    found: list[Any] = []
    matching = 0
    for page in pages(seen_world, "/offers", "vic", gpu="L4", provider="sandbox", limit=7):
        found, matching = [*found, *page["offers"]], page["matching"]
    assert len(found) == matching > 7
    prices = [
        (
            offer["term_months"] is not None,
            offer["availability"] in ("unavailable", "no_quota"),
            float(offer["price_per_gpu_hour"]),
        )
        for offer in found
        if offer["price_per_gpu_hour"] is not None
    ]
    assert prices == sorted(prices), "sold out comes later, and what is bought for months last"
    reachable = [offer for offer in listed(seen_world) if offer["engine"] and offer["availability"] == "available"]
    kinds = [offer["count"] == 0 for offer in reachable]
    assert kinds == sorted(kinds), "machines without a GPU come last"
    counted = list(pages(seen_world, "/offers", "vic", gpu="h100:8", provider="sandbox", limit=50))
    assert {one["count"] for page in counted for one in page["offers"]} == {8}
    assert seen_world.get("/offers", "vic", gpu="FOO99").status_code == 404
    assert seen_world.get("/offers", "vic", gpu="H100:x").status_code == 422
    wrong = seen_world.get("/offers", "vic", provider="sandbx")
    assert (wrong.status_code, wrong.json()["kind"]) == (404, "unknown_name")
    assert "did you mean 'sandbox'" in wrong.json()["detail"]


def test_old_reference_prices_are_listed_on_request(world: Company) -> None:
    broker = world.broker
    now = broker.clock.now()
    one = next(offer for offer in broker.store.offers() if offer.accelerator)
    book = replace(one, provider="acme", source="book", reference=True, as_of=now - timedelta(days=400))
    broker.store.record_poll("book", started=now, finished=now, offers=[book])
    plain, old = (world.get("/offers", "vic", provider="acme", **more).json() for more in ({}, {"old": True}))
    assert (plain["matching"], plain["old_hidden"]) == (0, 1)
    assert ([offer["provider"] for offer in old["offers"]], old["old_hidden"]) == (["acme"], 0)


def test_the_caller_is_told_what_the_token_is_good_for(seen_world: Company) -> None:
    told = seen_world.get("/me", "mia").json()
    assert told["person"]["teams"] == {"nlp": "member"}
    assert told["permissions"]["submit"] == ["nlp"]
    assert "approve" not in told["permissions"]
    assert seen_world.get("/me", "adam").json()["permissions"]["approve"] is None


def test_a_job_file_with_its_variables_is_for_members_of_the_team(seen_world: Company) -> None:
    path = f"/jobs/{seen_world.mine}/job-file"
    statuses = {who: seen_world.get(path, who).status_code for who in ("mia", "apple", "adam", "vic", "fay", "otto")}
    assert statuses == {"mia": 200, "apple": 200, "adam": 200, "vic": 403, "fay": 403, "otto": 404}
