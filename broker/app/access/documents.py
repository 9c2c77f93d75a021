"""People, API tokens and the audit log as results."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from broker.app.access.sessions import NewLink
from broker.app.access.tokens import NewToken
from broker.app.documents import Moment, Result
from broker.core.access.api_tokens import ApiToken, AuditOutcome, AuditRecord
from broker.core.access.people import Access, Permission, Person, TeamRole, TokenScope, roles_in_words
from broker.core.access.sessions import LINK_PATH
from broker.core.actors import Role


class PersonResult(Result):
    """A person or a service account. ``roles``: in all teams; ``teams``: the role in each team."""

    name: str
    service: bool
    roles: list[Role]
    teams: dict[str, TeamRole]
    added_at: Moment
    disabled_at: Moment | None

    @classmethod
    def of(cls, person: Person) -> Self:
        return cls.from_parts(person, roles=sorted(person.roles), teams=dict(sorted(person.teams.items())))

    @property
    def in_words(self) -> str:
        """The roles: ``administrator, nlp:member``."""
        return roles_in_words(self.roles, self.teams, disabled=self.disabled_at is not None)


class CallerIdentity(Result):
    """The owner of an API token, and its use: ``scopes`` of the token; ``permissions`` of its owner with it, by team;
    null for all teams, and for permissions without a team."""

    person: PersonResult
    scopes: list[TokenScope]
    permissions: dict[Permission, list[str] | None]

    @classmethod
    def of(cls, access: Access) -> Self:
        permission_teams = {permission: access.teams(permission) for permission in Permission}
        return cls(
            person=PersonResult.of(access.person),
            scopes=sorted(access.scopes),
            permissions={
                permission: None if teams is None else sorted(teams)
                for permission, teams in permission_teams.items()
                if teams is None or teams
            },
        )


class LocalIdentity(Result):
    """Who runs commands that use a store of this machine."""

    name: str
    roles: list[Role]


class LoggedOut(Result):
    """The end of a login at a team server. ``revoked``: its token is not accepted any more; if the server was not
    reached, it stays valid until it expires."""

    server: str | None
    revoked: bool


class PeopleList(Result):
    """Everybody, by name."""

    people: list[PersonResult]


class TokenResult(Result):
    """An API token, without its text. ``used_at``: within ten minutes; null if it was never used."""

    id: str
    person: str
    label: str
    scopes: list[TokenScope]
    good: bool
    made_at: Moment
    made_by: str
    expires_at: Moment
    revoked_at: Moment | None
    revoked_by: str
    used_at: Moment | None

    @classmethod
    def of(cls, stored: ApiToken, now: datetime, **more: Any) -> Self:
        return cls.from_parts(stored, scopes=sorted(stored.scopes), good=stored.good(now), **more)


class CreatedToken(TokenResult):
    """A new API token. ``token``: its text, shown this once."""

    token: str

    @classmethod
    def of_new(cls, new: NewToken, now: datetime) -> Self:
        return cls.of(new.token, now, token=new.text)


class TokenList(Result):
    """API tokens, oldest first."""

    tokens: list[TokenResult]

    @classmethod
    def of(cls, tokens: Sequence[ApiToken], now: datetime) -> Self:
        return cls(tokens=[TokenResult.of(token, now) for token in tokens])


class AuditLine(Result):
    """One line of the audit log. ``origin``: the entry point, with the address where there is one; ``token``: the id of
    the token, empty on the command line; ``reason``: the code of a refusal."""

    number: int
    at: Moment
    person: str
    origin: str
    token: str
    action: str
    subject: str
    outcome: AuditOutcome
    before: str
    after: str
    reason: str


class AuditLog(Result):
    """The newest lines of the audit log, the newest first."""

    lines: list[AuditLine]

    @classmethod
    def of(cls, records: Sequence[tuple[int, AuditRecord]]) -> Self:
        return cls(lines=[AuditLine.from_parts(record, number=number) for number, record in records])


class CreatedLink(Result):
    """A new sign-in link. ``link``: works once, and is never shown again."""

    person: str
    link: str
    ends_at: Moment

    @classmethod
    def of(cls, new: NewLink, base: str) -> Self:
        return cls.from_parts(new.link, link=f"{base}{LINK_PATH}/{new.secret}")
