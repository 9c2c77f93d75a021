"""The table of permissions: each role and scope, in one's own team, in another, and without a team."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from broker.core.access.people import (
    ROLE_PERMISSIONS,
    SCOPES,
    TEAM_ROLE_PERMISSIONS,
    Access,
    Permission,
    Person,
    TeamRole,
    TokenScope,
    has_everywhere,
)
from broker.core.actors import EntryPoint, Role

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
EVERY_SCOPE = frozenset(TokenScope)
LADDER = tuple(TeamRole)


def entering(*roles: Role, scopes: frozenset[TokenScope] = EVERY_SCOPE, **teams: TeamRole) -> Access:
    return Access(Person("ann", NOW, roles=frozenset(roles), teams=teams), scopes)


def test_every_permission_and_role_is_in_the_tables() -> None:
    assert set(SCOPES) == set(Permission)
    assert set(TEAM_ROLE_PERMISSIONS) == set(TeamRole)
    assert set(ROLE_PERMISSIONS) == set(Role)


@pytest.mark.parametrize(("less", "more"), list(pairwise(LADDER)))
def test_each_role_in_a_team_may_do_more_than_the_one_before(less: TeamRole, more: TeamRole) -> None:
    assert TEAM_ROLE_PERMISSIONS[less] < TEAM_ROLE_PERMISSIONS[more]


@pytest.mark.parametrize("permission", Permission)
def test_nobody_has_a_role_by_default(permission: Permission) -> None:
    assert not entering().anywhere(permission)
    assert not entering().may(permission, "nlp")
    assert not entering().may(permission, None)


@pytest.mark.parametrize("role", TeamRole)
@pytest.mark.parametrize("permission", Permission)
def test_a_role_in_a_team_ends_at_its_border(role: TeamRole, permission: Permission) -> None:
    access = entering(nlp=role)
    expected = permission in TEAM_ROLE_PERMISSIONS[role]
    assert access.may(permission, "nlp") is expected
    assert not access.may(permission, "vision")
    assert not access.may(permission, None), "what belongs to no team is for nobody in a team"


def test_finops_sees_all_money_and_answers_advice_alone() -> None:
    access = entering(Role.FINOPS)
    seen = {permission for permission in Permission if access.may(permission, "vision")}
    assert seen == {
        Permission.SEE_MARKET,
        Permission.SEE_JOBS,
        Permission.SEE_BUDGETS,
        Permission.SEE_POLICIES,
        Permission.SEE_ALL_TEAMS,
        Permission.ANSWER_ADVICE,
        Permission.WATCH_PRICES,
        Permission.MAKE_OWN_TOKENS,
    }


@pytest.mark.parametrize("permission", Permission)
def test_a_token_does_what_its_scope_says_alone(permission: Permission) -> None:
    needed = SCOPES[permission]
    assert entering(Role.ADMINISTRATOR, scopes=frozenset({needed})).may(permission, "nlp")
    assert not entering(Role.ADMINISTRATOR, scopes=EVERY_SCOPE - {needed}).may(permission, "nlp")


def test_only_a_token_of_that_scope_administers() -> None:
    others = EVERY_SCOPE - {TokenScope.PEOPLE}
    assert not entering(Role.ADMINISTRATOR, scopes=others).anywhere(Permission.ADMINISTER)


@pytest.mark.parametrize("permission", [Permission.ADMINISTER, Permission.FREEZE_STATEMENTS])
def test_only_an_administrator_who_is_a_person_administers_and_freezes(permission: Permission) -> None:
    assert has_everywhere(Person("ann", NOW, roles=frozenset({Role.ADMINISTRATOR})), permission)
    assert not has_everywhere(Person("fay", NOW, roles=frozenset({Role.FINOPS})), permission)
    assert not has_everywhere(Person("ci", NOW, service=True, roles=frozenset({Role.ADMINISTRATOR})), permission)
    gone = Person("ann", NOW, roles=frozenset({Role.ADMINISTRATOR}), disabled_at=NOW)
    assert not has_everywhere(gone, permission)


def test_a_service_account_never_approves() -> None:
    program = Person("ci", NOW, service=True, teams={"nlp": TeamRole.APPROVER})
    access = Access(program, EVERY_SCOPE)
    assert access.may(Permission.SUBMIT, "nlp")
    assert not access.may(Permission.APPROVE, "nlp")


@pytest.mark.parametrize("permission", Permission)
def test_whoever_is_disabled_may_nothing(permission: Permission) -> None:
    gone = Person("ann", NOW, roles=frozenset(Role), teams={"nlp": TeamRole.TEAM_ADMINISTRATOR}, disabled_at=NOW)
    assert not Access(gone, EVERY_SCOPE).anywhere(permission)


def test_the_actor_has_no_more_than_the_token() -> None:
    narrow = entering(Role.ADMINISTRATOR, scopes=frozenset({TokenScope.READ})).actor(EntryPoint.API)
    assert not narrow.may_act_for("bob", "nlp")
    assert entering(Role.ADMINISTRATOR).actor(EntryPoint.API).may_act_for("bob", None)
    of_team = entering(nlp=TeamRole.TEAM_ADMINISTRATOR).actor(EntryPoint.API)
    assert of_team.may_act_for("bob", "nlp")
    assert not of_team.may_act_for("bob", "vision")
    assert not of_team.may_act_for("bob", None)
