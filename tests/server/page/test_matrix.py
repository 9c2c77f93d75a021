"""Every role on every page, for a job of one's own team, of another team, and of none: made from the tables."""

from typing import Any

import pytest

from broker.app.service.health import Pulses
from broker.core.access.people import Permission
from broker.server.api.limits import WrongTokens
from broker.server.api.transport import Transport
from broker.server.page.application import PAGES, PageRoute, page
from broker.server.page.render import MENU
from broker.server.page.signing import LINK, SIGN_IN
from tests.server.page.browsing import FROM_HERE, Site
from tests.server.test_matrix import TEAMS, access_of
from tests.server.world import EVERYBODY, NOBODY, STRANGER

LOOKS = [route for route in PAGES if route.method == "GET"]
OF_A_JOB = [
    route
    for route in LOOKS
    if route.path.startswith("/jobs/{id}") and route.permission is not Permission.CHANGE_OWN_JOBS
]
OTHERS = [route for route in LOOKS if "{" not in route.path]
OF_ONE = {
    "sha256": "0" * 64,
    "number": 1,
    "purchase": "purchase-0",
    "name": "mia",
    "month": "2026-10",
    "advice": "idle-0",
    "team": "nlp",
    "first": "2026-11-02",
    "preview": "0" * 32,
}
"""What other pages name: of a job's files and of purchases there are none."""
# Names that stand in somebody's page alone: of the other team, its person, its job and its budget.
OF_VISION = ("vision", "otto", "foreign")


def named(route: PageRoute) -> str:
    return f"{route.method} {route.path}"


def test_no_page_lies_outside_of_the_table(seen_site: Site) -> None:
    routes: list[Any] = list(page(seen_site.world.broker, Pulses(), Transport(), WrongTokens()).routes)
    served = {(method, route.path) for route in routes for method in route.methods - {"HEAD"}}
    open_to_all = {(method, path) for method in ("GET", "POST") for path in (SIGN_IN, LINK)}
    assert served == {(route.method, route.path) for route in PAGES} | open_to_all
    everybodys = {route.path for route in PAGES if route.permission is None and not route.path.startswith("/me")}
    assert everybodys == {"/", "/sign-out", "/device"}


def test_the_menu_is_made_of_pages() -> None:
    assert {(entry.path, entry.permission) for entry in MENU} <= {(route.path, route.permission) for route in LOOKS}


@pytest.mark.parametrize("who", EVERYBODY)
@pytest.mark.parametrize("route", OF_A_JOB, ids=named)
def test_a_role_ends_at_the_border_of_its_team(seen_site: Site, route: PageRoute, who: str) -> None:
    access, hidden = access_of(who), list[list[str]]()
    assert route.permission is not None

    def page_of(id: str) -> tuple[int, list[str]]:
        only_now = "?seconds=0" if route.path.endswith("/news") else ""  # a stream ends with its job
        answer = seen_site.of(who).get(route.path.format(id=id, **OF_ONE) + only_now)
        told = answer.text.replace(answer.headers["x-request-id"], "").replace(id, "unknown")
        return answer.status_code, without_times(told)

    for which, team in TEAMS.items():
        status, told = page_of(getattr(seen_site.world, which))
        if not access.anywhere(route.permission):
            expected = 403
        elif not access.may(Permission.SEE_JOBS, team):
            expected = 404  # as if it were not there
            hidden.append(told)
        else:
            expected = 200 if access.may(route.permission, team) else 403
        if expected == 200 and "{sha256}" in route.path:
            expected = 404
        assert status == expected, which
    if hidden:
        unknown = page_of("unknown")[1]
        assert all(told == unknown for told in hidden), "nothing tells that it is there"


def without_times(text: str) -> list[str]:
    return [line for line in text.splitlines() if "<time" not in line]


# Budgets by the teams that they count; None: of all, or by no name.
BUDGETS = {"nlp": {"nlp"}, "vision": {"vision"}, "both": {"nlp", "vision"}, "all": None, "unknown": set[str]()}


@pytest.mark.parametrize("who", EVERYBODY)
def test_a_budget_that_counts_others_is_not_there(seen_site: Site, who: str) -> None:
    teams, listed = access_of(who).teams(Permission.SEE_BUDGETS), seen_site.of(who).get("/budgets").text
    for name, counted in BUDGETS.items():
        if teams == frozenset():
            expected = 403
        elif name != "unknown" and (teams is None or (counted is not None and counted <= teams)):
            expected = 200
        else:
            expected = 404
        assert seen_site.of(who).get(f"/budgets/{name}").status_code == expected, name
        assert (f'href="/budgets/{name}"' in listed) == (expected == 200), name


@pytest.mark.parametrize("who", EVERYBODY)
def test_a_list_needs_its_permission_in_at_least_one_team(seen_site: Site, who: str) -> None:
    access = access_of(who)
    for route in OTHERS:
        allowed = route.permission is None or access.anywhere(route.permission)
        answer = seen_site.of(who).get(route.path)
        assert answer.status_code == (200 if allowed else 403), named(route)
        if who != STRANGER and access.teams(Permission.SEE_JOBS) == frozenset({"nlp"}):
            assert not [name for name in OF_VISION if name in answer.text], named(route)


@pytest.mark.parametrize("who", EVERYBODY)
def test_versions_people_and_purchases_are_for_those_who_see_them(seen_site: Site, who: str) -> None:
    access, browser = access_of(who), seen_site.of(who)
    version = 200 if access.anywhere(Permission.SEE_ALL_TEAMS) else 403
    assert browser.get("/policies/versions/1").status_code == version
    person = 200 if access.anywhere(Permission.SEE_PEOPLE) else 403
    assert browser.get("/people/mia").status_code == person
    purchase = 404 if access.anywhere(Permission.SEE_BUDGETS) else 403
    assert browser.get("/purchases/purchase-0").status_code == purchase


@pytest.mark.parametrize("route", PAGES, ids=named)
def test_no_page_is_shown_without_a_session(seen_site: Site, route: PageRoute) -> None:
    path = route.path.format(id=seen_site.world.mine, **OF_ONE)
    answer = seen_site.browser().client.request(route.method, path, headers=FROM_HERE, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(SIGN_IN)


@pytest.mark.parametrize("who", EVERYBODY)
@pytest.mark.parametrize("which", TEAMS)
def test_the_question_before_cancelling_is_put_to_those_who_may(seen_site: Site, which: str, who: str) -> None:
    id, access = getattr(seen_site.world, which), access_of(who)
    owner = STRANGER if which == "foreign" else "mia"
    needed = Permission.CHANGE_OWN_JOBS if who == owner else Permission.CHANGE_TEAM_JOBS
    sees = access.may(Permission.SEE_JOBS, TEAMS[which])
    expected = 404 if access.anywhere(Permission.CHANGE_OWN_JOBS) and not sees else 403
    if access.may(needed, TEAMS[which]) and sees:
        expected = 200
    assert seen_site.of(who).get(f"/jobs/{id}/cancel").status_code == expected
    if sees:
        offered = f'href="/jobs/{id}/cancel"' in seen_site.of(who).get(f"/jobs/{id}").text
        assert offered == (expected == 200)


def test_whoever_has_no_role_is_told_so(seen_site: Site) -> None:
    answer = seen_site.of(NOBODY).get("/")
    assert "has no role yet" in answer.text
    assert "nlp" not in answer.text
