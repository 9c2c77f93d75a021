"""Whatever is sent to any route: no fault, every refusal a problem detail, every answer as it is described.

The requests are drawn from the OpenAPI document: what its schemas allow, and the same bent in places.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import pytest

from tests.server.world import Company, bearer, new_world

pytestmark = pytest.mark.system

REQUESTS = 40  # a route
ODD: tuple[Any, ...] = (
    *("", " ", "\x00", "..", "../../etc/passwd", "a" * 3000, "é\u202e💥", "' OR 1=1 --", "%00", "{}", "null", "\n"),
    *(0, -1, 10**30, 1e308, True, None, [], {}, [[]], {"a": {"b": []}}),
)
USEFUL = (
    "mine",
    "latest",
    "1h",
    "$5",
    "2026-10",
    "month",
    "team",
    "nlp",
    "mia",
    "csv",
    "2026-11-01T00:00:00Z",
    "x.yaml",
)
FREE = {("post", "/api/v1/admission/skypilot"): 400}
"""Answers that are no problem details: a veto for SkyPilot is plain text."""


@pytest.fixture(scope="module")
def bent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """A company of this file's own: whatever may be changed, is."""
    world = new_world(tmp_path_factory.mktemp("bent"))
    yield world
    world.broker.close()


class DrawnValues:
    """Values for the schemas of a description."""

    def __init__(self, described: Mapping[str, Any], chance: random.Random, ids: tuple[str, ...]) -> None:
        self._described, self._chance, self._ids = described, chance, ids

    def value(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        chance = self._chance
        if chance.random() < 0.12 or depth > 5:
            return chance.choice(ODD)
        if "$ref" in schema:
            return self.value(self._described["components"]["schemas"][schema["$ref"].rpartition("/")[2]], depth)
        for several in ("anyOf", "oneOf", "allOf"):
            if several in schema:
                return self.value(chance.choice(schema[several]), depth + 1)
        if "enum" in schema:
            return chance.choice(schema["enum"])
        return self._of_type(schema, depth)

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        chance, kind = self._chance, schema.get("type")
        if kind == "object":
            named = {
                name: self.value(one, depth + 1)
                for name, one in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or chance.random() < 0.6
            }
            more = schema.get("additionalProperties")
            if isinstance(more, dict):
                named[chance.choice(USEFUL)] = self.value(more, depth + 1)
            return named
        if kind == "array":
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(chance.randrange(3))]
        if kind in ("integer", "number"):
            return chance.choice((schema.get("minimum", 0), schema.get("maximum", 100), 1, 7, -3))
        if kind == "boolean":
            return chance.random() < 0.5
        return chance.choice((*USEFUL, *self._ids))

    def text(self, schema: Mapping[str, Any]) -> str:
        value = self.value(schema)
        return value if isinstance(value, str) else json.dumps(value)


def described(world: Company) -> dict[str, Any]:
    found: dict[str, Any] = world.app.openapi()
    return found


def operations() -> list[tuple[str, str]]:
    from broker.server.routes import ROUTES

    return sorted((route.method.lower(), route.whole_path) for route in ROUTES if route.method != "HEAD")


@pytest.mark.parametrize(("method", "path"), operations(), ids=lambda one: str(one))
def test_no_input_is_a_fault(bent: Company, method: str, path: str) -> None:
    document = described(bent)
    operation = document["paths"][path][method]
    drawn = DrawnValues(document, random.Random(f"{method} {path}"), (bent.mine, bent.asking, bent.nobodys))
    for number in range(REQUESTS):
        who = ("adam", "mia", "fay")[number % 3]
        answer = sent(bent, drawn, operation, method, path, who)
        told = f"{method} {answer.request.url} {answer.request.content[:300]!r}: {answer.text[:500]}"
        assert answer.status_code < 500, told
        if answer.status_code >= 400:
            if FREE.get((method, path)) == answer.status_code:
                continue
            assert answer.headers["content-type"] == "application/problem+json", told
            assert answer.json()["status"] == answer.status_code, told
            continue
        schema = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
        if schema and answer.headers.get("content-type") == "application/json":
            whole = {**schema, "components": document["components"]}
            assert jsonschema_rs.validator_for(whole).is_valid(answer.json()), told


def sent(world: Company, drawn: DrawnValues, operation: Mapping[str, Any], method: str, path: str, who: str) -> Any:
    """One request with drawn parameters and body."""
    chance, query, headers = drawn._chance, [], dict(bearer(world.usual(who)))
    for one in operation.get("parameters", ()):
        if one["in"] == "path":
            text = drawn.text(one["schema"]).replace("/", "").replace("\\", "") or "x"
            path = path.replace("{" + one["name"] + "}", quoted(text[:300]))
        elif one["in"] == "query" and (one.get("required") or chance.random() < 0.4):
            query.append((one["name"], drawn.text(one["schema"])[:300]))
        elif one["in"] == "header" and chance.random() < 0.95:
            headers[one["name"]] = f"key-{chance.random()}"
    if path.endswith("/stream"):
        query.append(("seconds", "0"))
    given: dict[str, Any] = {"params": query, "headers": headers}
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"].get("application/json", {}).get("schema", {})
        body = drawn.value(schema)
        text = json.dumps(body)
        given["content"] = text[: chance.randrange(len(text) + 1)] if chance.random() < 0.1 else text
        headers["Content-Type"] = "application/json"
    return world.client.request(method.upper(), path, **given)


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="") if text not in (".", "..") else "x"
