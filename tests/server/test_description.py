"""What the OpenAPI document says is what is answered: statuses, media types, problems, and examples that are taken."""

from itertools import chain
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest

from broker.core.access.people import SCOPES
from broker.server.api.routes import ROUTES, ApiRoute
from tests.server.test_matrix import _too_narrow, named, path_of
from tests.server.world import NOBODY, Company, bearer

CHANGES = [route for route in ROUTES if route.method not in ("GET", "HEAD")]


def operation(world: Company, route: ApiRoute) -> Any:
    document = described(world)
    return document["paths"][route.full_path][route.method.lower()]


def described(world: Company) -> Any:
    return world.app.openapi()


def asked_badly(world: Company, route: ApiRoute) -> list[Any]:
    """The answers to requests that each have one fault."""
    path, good = path_of(route, world.mine), bearer(world.token("adam"))  # each token has a rate of its own
    key = good | {"Idempotency-Key": str(uuid4())}
    needed = SCOPES[route.permission] if route.permission else None
    requests: list[tuple[str, dict[str, Any]]] = [
        (path, {}),
        (path, {"headers": bearer(world.usual(NOBODY))}),
        (path, {"headers": good, "params": {"nothing": "1"}}),
        (path_of(route, "unknown"), {"headers": key, "json": {}}),
    ]
    if route.permission:
        requests.append((path, {"headers": bearer(_too_narrow(world, needed))}))
    if route in CHANGES:
        requests += [
            (path, {"headers": good, "json": {"nothing": 1}}),
            (path, {"headers": key, "content": b"{"}),
            (path, {"headers": key, "json": [1]}),
            (path, {"headers": key | {"Transfer-Encoding": "chunked", "Content-Length": "3"}, "content": b"abc"}),
            (path, {"headers": key, "content": b" " * 1_000_001}),
        ]
    return [world.client.request(route.method, at, **options) for at, options in requests]


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_every_refusal_is_described(seen_world: Company, route: ApiRoute) -> None:
    document = described(seen_world)
    responses = operation(seen_world, route)["responses"]
    (media, problem), *_ = document["components"]["responses"]["Problem"]["content"].items()
    schema = problem["schema"] | {"components": document["components"]}
    validator = jsonschema_rs.validator_for(schema)
    statuses = set()
    for answer in asked_badly(seen_world, route):
        status = answer.status_code
        assert str(status) in responses, (status, answer.text)
        statuses.add(status)
        if "$ref" in responses[str(status)] and route.method != "HEAD":
            assert answer.headers["content-type"] == media
            validator.validate(answer.json())
    assert {401, 422} <= statuses or route.method in ("HEAD", "PUT")


def test_successes_are_described(seen_world: Company) -> None:
    for route in ROUTES:
        responses = operation(seen_world, route)["responses"]
        new = route.method == "PUT" and route.document
        expected = {str(route.status), *(["202"] if route.waits else []), *(["201"] if new else [])}
        assert {status for status in responses if status < "3"} == expected, named(route)
        for status in ("200", "201", "202"):
            content = responses.get(status, {}).get("content", {})
            assert all(one.get("schema") for one in content.values()) or route.method == "HEAD", named(route)


def test_each_operation_has_one_tag_and_a_name_of_its_own(seen_world: Company) -> None:
    operations = list(chain.from_iterable(one.values() for one in described(seen_world)["paths"].values()))
    assert len({one["operationId"] for one in operations}) == len(operations) == len(ROUTES)
    assert all(len(one["tags"]) == 1 for one in operations)


def test_each_body_has_an_example_that_is_taken(seen_world: Company) -> None:
    document = described(seen_world)
    for route in CHANGES:
        body = operation(seen_world, route).get("requestBody")
        if body is None:
            continue
        content = body["content"]["application/json"]
        schema = content["schema"] | {"components": document["components"]}
        jsonschema_rs.validator_for(schema).validate(content["example"])
        changes = route.status == 201 or "Idempotency-Key" in str(operation(seen_world, route))
        if route.method != "POST" or changes or route.endpoint.__name__ == "start_preview":
            continue  # it changes or begins something
        headers = bearer(seen_world.usual("adam"))
        answer = seen_world.client.post(path_of(route, seen_world.mine), json=content["example"], headers=headers)
        assert answer.status_code in (200, 404, 409), (named(route), answer.text)
