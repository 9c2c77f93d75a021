"""Use cases: people, their roles, and who may change them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditRecord
from broker.core.access.people import (
    ROLE_PERMISSIONS,
    Permission,
    Person,
    TeamRole,
    check_name,
    check_team,
    has_everywhere,
)
from broker.core.actors import Actor, Role
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.store.access.access import AccessReader, AccessWriter, AuditChain


def people(broker: Broker) -> Sequence[Person]:
    """All people by name, disabled ones included."""
    with broker.store.access.reading() as reader:
        return reader.people()


def add(broker: Broker, name: str, *, by: Actor, service: bool = False, administrator: bool = False) -> Person:
    """Add a person without a role, or as an administrator.

    While there are no people, anybody with access to the store may add the first person, who must be an administrator.
    Raises `InvalidInput` for an invalid name or one that is taken, and `NotAllowed` unless ``by`` is an administrator.
    """
    with broker.store.access.writing() as tx:
        return add_person(broker, tx, name, by=by, service=service, administrator=administrator)


def add_person(
    broker: Broker, tx: AccessWriter, name: str, *, by: Actor, service: bool = False, administrator: bool = False
) -> Person:
    """As `add`, within a transaction."""
    check_name(name)
    if service and administrator:
        raise InvalidInput(f"{name} is a service account and cannot be an administrator")
    if tx.people() or not administrator:
        require_administrator(tx, by)
    if tx.person(name) is not None:
        raise InvalidInput(f"{name} exists already", hint="`gpubroker people list`")
    roles = frozenset({Role.ADMINISTRATOR}) if administrator else frozenset[Role]()
    person = Person(name, broker.clock.now(), service, roles)
    tx.keep_person(person)
    tx.log(_audit_record(broker, by, "people.add", None, person))
    return person


def give_role(broker: Broker, name: str, role: Role | TeamRole, team: str | None = None, *, by: Actor) -> Person:
    """Give a person a global role, or a role in a team, which replaces their previous role there. The logins of their
    programs end. Raises `UnknownName`, `InvalidInput` for a team role without a team or the reverse, and `NotAllowed`
    unless ``by`` is an administrator."""
    if isinstance(role, TeamRole):
        if team is None:
            raise InvalidInput(f"{role} is a role in a team", hint="say --team")
        check_team(team)
        return _change_person(broker, name, "people.role", by, lambda p: _set_team_role(p, team, role))
    if team is not None:
        raise InvalidInput(f"{role} is a global role", hint="leave out --team")
    return _change_person(broker, name, "people.role", by, lambda p: _add_role(p, role))


def take_role(broker: Broker, name: str, role: Role | None = None, team: str | None = None, *, by: Actor) -> Person:
    """Remove a global role, or the role in a team. The logins of their programs end. Raises as `give_role`."""
    if (role is None) == (team is None):
        raise InvalidInput("expected a role, or a team", hint="say --role or --team")

    def without_role(person: Person) -> Person:
        teams = {name: team_role for name, team_role in person.teams.items() if name != team}
        return replace(person, roles=person.roles - {role}, teams=teams)

    return _change_person(broker, name, "people.role", by, without_role)


def disable(broker: Broker, name: str, *, by: Actor) -> Person:
    """Disable a person: none of their tokens is accepted any more, and their sessions and sign-in links end for good.
    Raises as `give_role`."""
    now = broker.clock.now()
    return _change_person(broker, name, "people.disable", by, lambda p: replace(p, disabled_at=p.disabled_at or now))


def enable(broker: Broker, name: str, *, by: Actor) -> Person:
    """Enable a disabled person: their tokens that were not revoked are accepted again. Raises as `give_role`."""
    return _change_person(broker, name, "people.enable", by, lambda p: replace(p, disabled_at=None))


def require_administrator(reader: AccessReader, by: Actor) -> None:
    """Raises `NotAllowed` unless ``by`` is an administrator: root on this machine, or a person with that role."""
    require_permission(reader, by, Permission.ADMINISTER)


def require_role(broker: Broker, by: Actor, permission: Permission) -> None:
    """As `require_permission`, in a store that has people; everybody may use a store without."""
    with broker.store.access.reading() as reader:
        if reader.people():
            require_permission(reader, by, permission)


def require_permission(reader: AccessReader, by: Actor, permission: Permission) -> None:
    """Raises `NotAllowed` unless ``by`` has the permission in every team: root on this machine, or a person with such a
    role."""
    person = reader.person(by.identity)
    if (person is not None and has_everywhere(person, permission)) or any(
        permission in ROLE_PERMISSIONS[r] for r in by.roles
    ):
        return
    people = reader.people()
    if not people:
        hint = f"there are no people yet; begin with `gpubroker people invite {by.identity} --administrator`"
    else:
        names = [candidate.name for candidate in people if has_everywhere(candidate, permission)]
        hint = f"ask {' or '.join(names[:5])}" if names else "root on the server may do it"
    roles = [role.value for role, permissions in ROLE_PERMISSIONS.items() if permission in permissions]
    role_names = " or ".join(f"{'an' if role.startswith('a') else 'a'} {role}" for role in roles)
    raise NotAllowed(f"only {role_names} may do this, and {by.identity} is none", hint=hint)


def get_person(reader: AccessReader, name: str) -> Person:
    """The person of that name. Raises `UnknownName`."""
    person = reader.person(name)
    if person is None:
        raise UnknownName("person", name, [candidate.name for candidate in reader.people()])
    return person


def _add_role(person: Person, role: Role) -> Person:
    if person.service and role is Role.ADMINISTRATOR:
        raise _role_not_for_services(person, role)
    return replace(person, roles=person.roles | {role})


def _set_team_role(person: Person, team: str, role: TeamRole) -> Person:
    if person.service and role in (TeamRole.APPROVER, TeamRole.TEAM_ADMINISTRATOR):
        raise _role_not_for_services(person, role)
    return replace(person, teams={**person.teams, team: role})


def _role_not_for_services(person: Person, role: Role | TeamRole) -> InvalidInput:
    hint = "a service account can be a viewer or a member of teams, finops, and gate"
    return InvalidInput(f"{person.name} is a service account and cannot be {role.replace('_', ' ')}", hint=hint)


def set_person(
    broker: Broker, name: str, *, roles: Iterable[Role], teams: Mapping[str, TeamRole], service: bool,
    disabled: bool | None, by: Actor,
) -> Person:  # fmt: skip
    """Make a person have exactly these roles; somebody new is added. ``disabled``: None leaves it as it is. Idempotent.
    Raises `InvalidInput`, also where ``service`` is another than before, and `NotAllowed` unless ``by`` is an
    administrator."""
    with broker.store.access.writing() as tx:
        require_administrator(tx, by)
        before = tx.person(name) or add_person(broker, tx, name, by=by, service=service)
        if before.service != service:
            kind = "a service account" if before.service else "a person"
            raise InvalidInput(f"{name} is {kind}, and remains one", where="service", hint="use another name")
        after = replace(before, roles=frozenset(), teams={})
        if disabled is not None:
            after = replace(after, disabled_at=(before.disabled_at or broker.clock.now()) if disabled else None)
        for role in roles:
            after = _add_role(after, role)
        for team, team_role in teams.items():
            after = _set_team_role(after, check_team(team), team_role)
        return _keep_change(broker, tx, before, after, "people.set", by)


def _change_person(broker: Broker, name: str, action: str, by: Actor, change: Callable[[Person], Person]) -> Person:
    with broker.store.access.writing() as tx:
        require_administrator(tx, by)
        before = get_person(tx, name)
        return _keep_change(broker, tx, before, change(before), action, by)


def _keep_change(
    broker: Broker, tx: AccessWriter, before: Person, after: Person, action: str, by: Actor
) -> Person:  # fmt: skip
    if after == before:
        return before
    _check_last_administrator(tx, before, after)
    tx.keep_person(after)
    if after.disabled_at is not None:
        tx.end_sessions(after.name)
        tx.end_links(after.name)
        tx.end_granted_logins(after.name)
    tx.log(_audit_record(broker, by, action, before, after))
    _end_logins(broker, tx, before, after, by.identity, by.audit_origin)
    return after


def apply_provider_roles(
    broker: Broker, tx: AccessWriter, before: Person, after: Person, by: str, origin: str
) -> Person:  # fmt: skip
    """Store a person whose roles the identity provider changed, with an audit line; returns the person as stored. The
    last administrator keeps that role. Logins of their programs end as in `give_role`."""
    try:
        _check_last_administrator(tx, before, after)
    except InvalidInput:
        after = replace(after, roles=after.roles | {Role.ADMINISTRATOR})
    tx.keep_person(after)
    now = broker.clock.now()
    tx.log(AuditRecord(now, by, origin, "people.role", after.name, before=before.in_words, after=after.in_words))
    _end_logins(broker, tx, before, after, by, origin)
    return after


def _end_logins(broker: Broker, tx: AccessWriter, before: Person, after: Person, by: str, origin: str) -> None:
    """Revoke the tokens that a person gave their programs, if their roles changed: these have the scopes of an earlier
    session. So have logins that were granted and not yet collected. An administrator who stays one may do no more and
    no less, so theirs remain."""
    is_unchanged = (before.roles, before.teams) == (after.roles, after.teams)
    if is_unchanged or Role.ADMINISTRATOR in before.roles & after.roles:
        return
    now = broker.clock.now()
    tx.end_granted_logins(after.name)
    for token in tx.self_given_tokens(after.name):
        note = "revoked: roles changed"
        tx.log(AuditRecord(now, by, origin, "tokens.revoke", token.id, before=token.in_words, after=note))
        tx.revoke_token(token, by=by, at=now)


def _check_last_administrator(tx: AccessWriter, before: Person, after: Person) -> None:
    """Raises `InvalidInput` if no administrator would be left."""

    def is_administrator(person: Person) -> bool:
        return Role.ADMINISTRATOR in person.roles and person.disabled_at is None

    if (
        is_administrator(before)
        and not is_administrator(after)
        and not any(is_administrator(p) for p in tx.people() if p.name != before.name)
    ):
        raise InvalidInput(f"{before.name} is the last administrator", hint="make another administrator first")


def _audit_record(broker: Broker, by: Actor, action: str, before: Person | None, after: Person) -> AuditRecord:
    before_text = before.in_words if before else ""
    after_text = f"{'service account, ' if after.service else ''}{after.in_words}"
    return AuditRecord.by(by, broker.clock.now(), action, after.name, before=before_text, after=after_text)


def audit_log(
    broker: Broker, *, by: Actor, limit: int, person: str | None = None, subject: str | None = None,
    before: int | None = None,
) -> Sequence[tuple[int, AuditRecord]]:  # fmt: skip
    """The newest lines, or those before one, with their numbers, newest first. Raises `NotAllowed` unless ``by`` is an
    administrator."""
    with broker.store.access.reading() as reader:
        require_administrator(reader, by)
        return reader.audit(limit=limit, person=person, subject=subject, before=before)


def audit_chain(broker: Broker, noted: str, *, by: Actor) -> AuditChain:
    """Whether the log is as it was written. Raises `NotAllowed` unless ``by`` is an administrator."""
    with broker.store.access.reading() as reader:
        require_administrator(reader, by)
        return reader.audit_chain(noted)


def log(broker: Broker, record: AuditRecord) -> int:
    """Append a line; returns its number."""
    with broker.store.access.writing() as tx:
        return tx.log(record)
