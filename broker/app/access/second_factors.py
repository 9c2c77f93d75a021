"""Use cases: setting up a second factor, asking for it, and removing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import quote, urlencode

from broker.app.access.people import known_person, only_administrators
from broker.app.jobs.sealed_secrets import opened_at_home, sealed_at_home
from broker.app.wiring import Broker
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.access.people import Person
from broker.core.access.second_factors import (
    UNCONFIRMED,
    SecondFactor,
    in_letters,
    new_key,
    new_recovery_codes,
    recovery_digest,
    step_of,
)
from broker.core.actors import Actor
from broker.core.errors import AskAPerson, InvalidInput
from broker.store.access.access import AccessReading, AccessWriting

_ISSUER = "gpubroker"


class WrongCode(AskAPerson):
    """A code that is not, or no longer, the one that the person's app shows."""

    def __init__(self) -> None:
        super().__init__(
            "the code is wrong or no longer valid", hint="wait for the next one; is the clock of the phone right?"
        )


@dataclass(frozen=True, slots=True, repr=False)
class NewSecondFactor:
    """A second factor that is not confirmed yet. ``letters``: its key in Base32, as people type it into an app."""

    person: str
    letters: str

    @property
    def uri(self) -> str:
        """The key as an ``otpauth:`` URI, which apps read from a QR code or a link."""
        asked = {"secret": self.letters, "issuer": _ISSUER}
        return f"otpauth://totp/{_ISSUER}:{quote(self.person)}?{urlencode(asked)}"


def begin(broker: Broker, name: str, *, origin: str, by: Actor | None = None) -> NewSecondFactor:
    """A new second factor for a person with a password. It has to be confirmed within an hour (`confirm`) and is
    required from then on. It replaces one that was never confirmed. ``by``: the administrator who sets it up; None: the
    person. Raises `UnknownName`, `NotAllowed`, and `InvalidInput` for a person without a password or with a second
    factor."""
    key = new_key()
    box = sealed_at_home(broker, key, _purpose(name))
    with broker.store.access.writing() as tx:
        if by is not None:
            only_administrators(tx, by)
        person = known_person(tx, name)
        if tx.password(person.name) is None:
            raise InvalidInput(f"{name} does not sign in with a password", hint=f"`gpubroker people invite {name}`")
        if _confirmed(tx, person.name) is not None:
            raise InvalidInput(f"{name} has a second factor", hint="remove it first")
        tx.keep_second_factor(SecondFactor(person.name, box, broker.clock.now()))
        _log(broker, tx, name, "second_factor.begin", origin, by)
    return NewSecondFactor(person.name, in_letters(key))


def confirm(broker: Broker, name: str, code: str, *, origin: str, by: Actor | None = None) -> Sequence[str]:
    """Confirm a second factor with its first code; it is required from now on. Returns its recovery codes, which cannot
    be shown again. All sessions of the person end. Raises `WrongCode`, `InvalidInput` if none was begun in the last
    hour, and as `begin`."""
    codes = new_recovery_codes()
    with broker.store.access.writing() as tx:
        if by is not None:
            only_administrators(tx, by)
        factor, now = tx.second_factor(known_person(tx, name).name), broker.clock.now()
        if factor is None or not factor.waits(now, UNCONFIRMED * broker.clock.scale):
            hint = "begin again; the first code is accepted for an hour"
            raise InvalidInput(f"no second factor of {name} waits for its first code", hint=hint)
        step = step_of(code, opened_at_home(broker, factor.sealed, _purpose(name)), now, factor.step)
        if step is not None:
            digests = tuple(recovery_digest(one) for one in codes)
            tx.keep_second_factor(replace(factor, confirmed_at=now, step=step, recovery=digests))
            tx.end_sessions(name)
            _log(broker, tx, name, "second_factor.confirm", origin, by)
    if step is None:
        raise WrongCode
    return codes


def passes(broker: Broker, tx: AccessWriting, name: str, code: str, origin: str) -> bool:
    """Whether the person has no second factor, or ``code`` is its current code or one of its recovery codes. Each code
    is accepted once. Raises `StoreProblem` if the key cannot be opened."""
    factor = _confirmed(tx, name)
    if factor is None:
        return True
    if (digest := recovery_digest(code)) in factor.recovery:
        left = tuple(one for one in factor.recovery if one != digest)
        tx.keep_second_factor(replace(factor, recovery=left))
        _log(broker, tx, name, "second_factor.recovery_code", origin, None, after=f"{len(left)} left")
        return True
    step = step_of(code, opened_at_home(broker, factor.sealed, _purpose(name)), broker.clock.now(), factor.step)
    if step is None:
        return False
    tx.keep_second_factor(replace(factor, step=step))
    return True


def remove(broker: Broker, name: str, *, origin: str, by: Actor | None = None) -> None:
    """Remove a person's second factor, as for a lost phone; all their sessions end. Idempotent. ``by``: as in `begin`.
    The caller has confirmed a person who removes their own. Raises `UnknownName` and `NotAllowed`."""
    with broker.store.access.writing() as tx:
        if by is not None:
            only_administrators(tx, by)
        if tx.second_factor(known_person(tx, name).name) is None:
            return
        tx.drop_second_factor(name)
        tx.end_sessions(name)
        _log(broker, tx, name, "second_factor.remove", origin, by)


def second_factor(broker: Broker, name: str) -> SecondFactor | None:
    """The person's second factor; None if there is none or it is not confirmed."""
    with broker.store.access.reading() as look:
        return _confirmed(look, name)


def has_to_set_up(broker: Broker, person: Person) -> bool:
    """Whether the person signs in with a password, and may only read until they have set up a second factor."""
    with broker.store.access.reading() as look:
        return look.password(person.name) is not None and lacks(broker, look, person)


def lacks(broker: Broker, look: AccessReading, person: Person) -> bool:
    """Whether the person has to set up a second factor before they may change anything (setting
    ``serve.second_factor_for``)."""
    return broker.settings.serve.second_factor_for.asks(person) and _confirmed(look, person.name) is None


def _confirmed(look: AccessReading, name: str) -> SecondFactor | None:
    found = look.second_factor(name)
    return found if found is not None and found.confirmed_at is not None else None


def _purpose(name: str) -> str:
    return f"gpubroker second factor of {name}"


def _log(
    broker: Broker, tx: AccessWriting, name: str, action: str, origin: str, by: Actor | None, after: str = ""
) -> None:
    now: datetime = broker.clock.now()
    who, where = (name, origin) if by is None else (by.identity, by.came_from)
    tx.log(AuditRecord(now, who, where, action, name, AuditOutcome.DONE, after=after))
