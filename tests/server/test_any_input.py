"""Whatever is sent to any route: no fault, and no answer that the OpenAPI document does not describe.

schemathesis draws the requests from the document itself: what it allows, and what it does not. Half of the parameters
that name something name what is there.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from broker.server.api.application import Envelope
from broker.server.api.routes import ROUTES
from tests.server.world import Company, bearer, new_world

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("any input")]  # one company, described once

REQUESTS = 6  # a route, of each kind
KNOWN = {"team": "nlp", "user": "mia", "person": "mia", "period": "month", "gpu": "L4:1", "provider": "sandbox"}
PEOPLE = ("adam", "mia", "fay")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


@pytest.fixture(scope="module")
def bent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """A company of this file's own: whatever may be changed, is."""
    world = new_world(tmp_path_factory.mktemp("bent"))
    yield world
    world.broker.close()


@pytest.fixture(scope="module")
def described(bent: Company) -> Any:
    """The document as schemathesis reads it, with the application behind it."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    found = schemathesis.openapi.from_dict(bent.app.openapi())
    found.app = Envelope(bent.app)
    ids = (bent.mine, bent.asking, bent.nobodys)

    @found.hook  # type: ignore[untyped-decorator,unused-ignore]  # untyped, and not always installed
    def map_path_parameters(context: Any, drawn: dict[str, Any] | None) -> dict[str, Any] | None:
        return known(drawn, ids)

    @found.hook  # type: ignore[untyped-decorator,unused-ignore]  # untyped, and not always installed
    def map_query(context: Any, drawn: dict[str, Any] | None) -> dict[str, Any] | None:
        return known(drawn, ids)

    return found


def known(drawn: dict[str, Any] | None, ids: tuple[str, ...]) -> dict[str, Any] | None:
    """The drawn parameters, some of them replaced by what is there; which ones, depends on what was drawn alone."""
    if not drawn:
        return drawn
    names: dict[str, Any] = {**KNOWN, "id": ids[len(str(drawn)) % len(ids)]}
    return {name: names[name] if name in names and len(str(value)) % 2 else value for name, value in drawn.items()}


OPERATIONS = sorted((route.full_path, route.method) for route in ROUTES if route.method != "HEAD")


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=str)
def test_no_input_is_a_fault_or_answered_otherwise_than_described(
    bent: Company, described: Any, path: str, method: str
) -> None:
    from schemathesis import checks
    from schemathesis.generation import GenerationMode

    wanted = checks.CHECKS.get_by_names(CHECKS)
    operation = described[path][method]
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @seed(1)
        @settings(
            max_examples=REQUESTS, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def asked(case: Any) -> None:
            person = PEOPLE[len(str(case.path_parameters)) % len(PEOPLE)]
            query = {"seconds": 0} if path.endswith("/stream") else None
            answer = case.call(headers=bearer(bent.usual(person)), params=query)
            case.validate_response(answer, checks=wanted)

        asked()
