"""Lists in pages and by filters, answers that have not changed, and compressed ones."""

import gzip
from typing import Any

import pytest

from broker.app.documents import Result
from broker.app.use_cases.pages import cursor_of, page_class, page_of
from broker.app.use_cases.table import LISTS, Listing
from tests.server.test_changing import ask
from tests.server.world import Company, bearer


def rows_of(listing: Listing, document: Any) -> list[Any]:
    found: list[Any] = document[listing.rows]
    return found


@pytest.mark.parametrize("template", LISTS)
def test_pages_are_the_whole_list(seen_world: Company, template: str) -> None:
    path, row = template.format(id=seen_world.mine), LISTS[template]
    whole = rows_of(row, seen_world.get(path, "adam").json())
    found: list[Any] = []
    cursor: dict[str, str] = {}
    for _ in range(len(whole) + 1):
        page = seen_world.get(path, "adam", limit=1, **cursor).json()
        found += rows_of(row, page)
        assert len(rows_of(row, page)) <= 1
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    names = [str(one.get(row.key)) for one in found]
    assert names == [str(one.get(row.key)) for one in whole]
    for wrong in ("x", "WzFd"):
        refused = seen_world.get(path, "adam", cursor=wrong)
        assert (refused.status_code, refused.json()["where"]) == (422, "cursor")
    for name in row.filters:
        assert rows_of(row, seen_world.get(path, "adam", **{name: "nothing-has-this"}).json()) == []
        assert len(rows_of(row, seen_world.get(path, "adam", **{name: "*"}).json())) <= len(whole)


def test_filters_select_by_name_or_pattern(seen_world: Company) -> None:
    def names(**filters: Any) -> list[str]:
        return [one["name"] for one in seen_world.get("/people", "adam", **filters).json()["people"]]

    assert names(role="administrator") == ["adam"]
    assert names(role="fin*") == ["fay", "finn"]
    assert names(team="vision") == ["finn", "otto"]
    assert names(team="vision", role="finops") == ["finn"], "all filters at once"
    asked = seen_world.get("/approvals", "adam", team="vision").json()["requests"]
    assert asked == []


def test_a_page_goes_on_where_a_row_has_gone(world: Company) -> None:
    for name in ("a", "b", "c"):
        body = {"trigger": "available", "gpu": ["L4"], "provider": ["sandbox"]}
        assert put(world, f"/watches/{name}", "mia", body).status_code == 201
    first = world.get("/watches", "mia", limit=2).json()
    world.broker.store.watches.remove("b")
    rest = world.get("/watches", "mia", limit=2, cursor=first["next_cursor"]).json()
    assert [one["name"] for one in first["watches"] + rest["watches"]] == ["a", "b"]
    again = world.get("/watches", "mia", limit=2, cursor=world.get("/watches", "mia", limit=1).json()["next_cursor"])
    assert [one["name"] for one in again.json()["watches"]] == ["c"]


def put(world: Company, path: str, by: str, body: Any) -> Any:
    return world.client.put(f"/api/v1{path}", json=body, headers=bearer(world.usual(by)))


class Request(Result):
    job: str


class RequestList(Result):
    requests: list[Request]


def test_rows_of_the_same_name_are_each_on_one_page() -> None:
    whole, cursor, pages = RequestList(requests=[Request(job=job) for job in ("j1", "j2", "j1", "j3")]), None, ""
    for _ in whole.requests:
        page: Any = page_of(page_class(RequestList), whole, Listing("requests", "job"), 1, cursor)
        pages, cursor = f"{pages} {page.requests[0].job}", page.next_cursor
    assert (pages, cursor) == (" j1 j2 j1 j3", None)


def test_a_cursor_that_no_database_takes_is_refused(seen_world: Company) -> None:
    assert seen_world.get("/audit", "adam", cursor=cursor_of(10**30)).status_code == 422


def test_the_audit_log_is_read_to_its_beginning(world: Company) -> None:
    for number in range(3):
        ask(world, f"/jobs/{world.mine}/extend", "mia", {"max_duration": f"{number + 3}h"})
    newest = world.get("/audit", "adam", limit=4).json()
    numbers = [line["number"] for line in newest["lines"]]
    while newest["next_cursor"]:
        newest = world.get("/audit", "adam", limit=4, cursor=newest["next_cursor"]).json()
        numbers += [line["number"] for line in newest["lines"]]
    assert numbers == list(range(numbers[0], 0, -1))


def test_what_has_not_changed_is_not_sent_again(world: Company) -> None:
    def asked(tag: str = "") -> Any:
        headers = bearer(world.usual("adam")) | {"If-None-Match": tag}
        return world.client.get("/api/v1/people", headers=headers)

    first = asked()
    tag = first.headers["etag"]
    same = asked(f'"other", {tag}')
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert same.headers["cache-control"] == "no-store"
    assert asked('"other"').status_code == 200
    put(world, "/people/zoe", "adam", {"roles": [], "teams": {"nlp": "viewer"}})
    changed = asked(tag)
    assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)
    other_person = world.client.get("/api/v1/people", headers=bearer(world.usual("vic")) | {"If-None-Match": tag})
    assert other_person.status_code == 403, "first whether the caller may"


def test_documents_are_compressed_for_those_who_take_it(seen_world: Company) -> None:
    def asked(encoding: str) -> Any:
        headers = bearer(seen_world.usual("adam")) | {"Accept-Encoding": encoding}
        with seen_world.client.stream("GET", "/api/v1/people", headers=headers) as answer:
            return answer.headers, b"".join(answer.iter_raw())

    plain, compressed = asked("identity"), asked("gzip")
    assert "content-encoding" not in plain[0]
    assert compressed[0]["content-encoding"] == "gzip"
    assert gzip.decompress(compressed[1]) == plain[1]
    assert len(compressed[1]) < len(plain[1]) / 2
    assert compressed[0]["etag"] == plain[0]["etag"]
