"""Every role on every route, for a job of one's own team, of another team, and of none: made from the tables. OWASP
ASVS 5.0: 8.2.1 to 8.2.3, 8.3.1, 8.4.1."""

from datetime import UTC, datetime
from typing import Any

import pytest

from broker.core.access.people import SCOPES, Access, Permission, Person, TeamRole, TokenScope
from broker.core.actors import Role
from broker.server.api.routes import PUBLIC, ROUTES, ApiRoute
from tests.server.world import BOTH, EVERYBODY, IN_TEAM, NOBODY, OVER_ALL, STRANGER, Company, bearer

TEAMS = {"mine": "nlp", "foreign": "vision", "nobodys": None}
LOOKS = [route for route in ROUTES if route.method == "GET"]
OF_A_JOB = [route for route in LOOKS if "{id}" in route.path]
OF_ONE = {
    "sha256": "0" * 64,
    "kind": "files",
    "checkpoint": "latest",
    "month": "2025-13",
    "advice": "idle-0",
    "team": "nlp",
    "first": "2026-11-02",
    "preview": "0" * 32,
    "budget": "everything",
    "purchase": "purchase-0",
    "launch": "slurm-0",
    "task": "slurm-0.1",
    "number": "7",
    "person": "nobody",
    "token": "0123456789ab",
    "watch": "nothing",
}
"""What other addresses name; the things of a job's are not there, nor are purchases."""
OTHERS = [route for route in LOOKS if "{" not in route.path]
OF_SOMETHING = [route for route in LOOKS if "{" in route.path and "{id}" not in route.path]


def access_of(name: str) -> Access:
    """What the tables say of somebody, without the store."""
    over_all = OVER_ALL | {BOTH: Role.FINOPS}
    roles = frozenset({over_all[name]}) if name in over_all else frozenset[Role]()
    teams = {"nlp": IN_TEAM[name]} if name in IN_TEAM else {}
    if name in (STRANGER, BOTH):
        teams = {"vision": TeamRole.TEAM_ADMINISTRATOR}
    return Access(Person(name, datetime(2026, 1, 1, tzinfo=UTC), roles=roles, teams=teams), frozenset(TokenScope))


def named(route: ApiRoute) -> str:
    return f"{route.method} {route.path}"


def path_of(route: ApiRoute, id: str) -> str:
    """An address of the route: of that job, or of some content."""
    return route.full_path.format(id=id, **OF_ONE)


def test_no_route_lies_outside_of_the_table(seen_world: Company) -> None:
    routes: list[Any] = list(seen_world.app.routes)
    served = {
        (method, route.path)
        for route in routes
        for method in route.methods - ({"HEAD"} if "GET" in route.methods else set())
    }
    known = {(route.method, route.full_path) for route in ROUTES} | PUBLIC
    assert served == known
    assert [route for route in ROUTES if route.permission is None] == [ROUTES[0]], "only /me is for any token"


@pytest.mark.parametrize("who", EVERYBODY)
@pytest.mark.parametrize("route", OF_A_JOB, ids=named)
def test_a_role_ends_at_the_border_of_its_team(seen_world: Company, route: ApiRoute, who: str) -> None:
    access = access_of(who)
    assert route.permission is not None
    only_now = {"seconds": 0} if route.path.endswith("/stream") else {}  # a stream ends with its job
    hidden = dict[str, str]()
    for which, team in TEAMS.items():
        id = getattr(seen_world, which)
        answer = seen_world.get(route.path.format(id=id, **OF_ONE), who, **only_now)
        if not access.anywhere(route.permission):
            expected = 403
        elif not access.may(Permission.SEE_JOBS, team):
            expected = 404  # as if it were not there
            hidden[which] = str(answer.json() | {"request_id": ""}).replace(id, "unknown")
        else:
            expected = 200 if access.may(route.permission, team) else 403
        if expected == 200 and "{" in route.path.replace("{id}", ""):  # a file that nobody wrote
            expected = 404
        assert answer.status_code == expected, (which, answer.text)
        if answer.status_code != 200:
            assert "vision" not in answer.text or who == STRANGER
    if hidden:
        unknown = seen_world.get(route.path.format(id="unknown", **OF_ONE), who)
        assert set(hidden.values()) == {str(unknown.json() | {"request_id": ""})}, "nothing tells that it is there"


@pytest.mark.parametrize("who", EVERYBODY)
def test_lists_are_for_whoever_has_the_permission_somewhere_and_name_no_other_team(
    seen_world: Company, who: str
) -> None:
    access = access_of(who)
    for route in OTHERS:
        allowed = route.permission is None or access.anywhere(route.permission)
        answer = seen_world.get(route.path, who)
        assert answer.status_code == (200 if allowed else 403), named(route)
        if access.teams(Permission.SEE_JOBS) == frozenset({"nlp"}):
            assert not [name for name in ("vision", "otto", "foreign") if name in answer.text], named(route)


@pytest.mark.parametrize("route", OF_SOMETHING, ids=named)
def test_what_is_not_there_is_not_there_for_whoever_may_look(seen_world: Company, route: ApiRoute) -> None:
    assert route.permission is not None
    for who in EVERYBODY:
        found = seen_world.get(route.path.format(**OF_ONE), who)
        expected = {400, 404, 422} if access_of(who).anywhere(route.permission) else {403}
        assert found.status_code in expected, (who, found.text)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_no_route_answers_without_a_token(seen_world: Company, route: ApiRoute) -> None:
    answer = seen_world.client.request(route.method, path_of(route, seen_world.mine))
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert route.method == "HEAD" or answer.json()["kind"] == "sign_in_needed"


def _too_narrow(world: Company, needed: TokenScope | None) -> str:
    """A token with all scopes but one, made once."""
    name = f"adam without {needed}"
    if name not in world.usuals:
        world.usuals[name] = world.token("adam", *(scope for scope in TokenScope if scope is not needed))
    return world.usuals[name]


@pytest.mark.parametrize("route", [route for route in ROUTES if route.permission], ids=named)
def test_a_too_narrow_token_is_refused_on_every_route(seen_world: Company, route: ApiRoute) -> None:
    assert route.permission is not None
    needed = SCOPES[route.permission]
    headers = bearer(_too_narrow(seen_world, needed))
    answer = seen_world.client.request(route.method, path_of(route, seen_world.mine), headers=headers)
    assert answer.status_code == 403
    if route.method == "HEAD":  # it has no body
        return
    assert answer.json()["kind"] == "role_missing"
    assert f"needs the scope {needed}" in answer.json()["detail"]


def test_whoever_has_no_role_sees_nothing(seen_world: Company) -> None:
    assert seen_world.get("/me", NOBODY).json()["permissions"] == {}
