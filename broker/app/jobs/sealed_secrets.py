"""A job's secrets: encrypted at submission for the processes that may launch it, and erased when the job is closed.

At submission the values in the submitter's environment are encrypted (HPKE, RFC 9180) into the run store, once for the
key of the submitter's home folder, which their background reconciler uses, and once for the key of the service, if a
service has published one. Private keys are files with mode 0600 next to the database, never in it. The seal's id is
part of the encryption and of the job, so a seal opens for no other job.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.agent.store import to_bytes
from broker.app.jobs.snapshots import pool_name
from broker.app.runs_root import open_folder
from broker.app.wiring import Broker
from broker.core.actors import Actor, ProcessAccount
from broker.core.errors import InvalidInput, SecretsAbsent, StoreProblem
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, SecretsSeal
from broker.engines.snapshots.upload import store_errors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

KEY_FILE = "secrets.key"
_SERVICE_KEY_SETTING = "secrets_service_key"  # the setting of the store with the public key of its service
_VERSION = 1


def missing_secrets(job: Job) -> Sequence[str]:
    """The names of the job's required secrets that are not in the environment of this process."""
    return [name for name in job.secrets if name not in os.environ and name not in job.optional_secrets]


def missing_secrets_notes(job: Job) -> list[str]:
    """The note of a plan on `missing_secrets`; empty if none is missing."""
    missing = ", ".join(missing_secrets(job))
    return [f"`submit` would refuse the job: secrets not in the environment: {missing}"] if missing else []


def seal_secrets(broker: Broker, job: Job, *, by: Actor) -> Job:
    """The job with its secrets, taken from this process's environment, sealed in the run store; the job unchanged if it
    has none. Writes one object; `erase` it if the job is then not submitted.

    Raises `Unreachable` for the run store, `StoreProblem` if the key cannot be made.
    """
    values = {name: os.environ[name] for name in job.secrets if name in os.environ}
    if not values or job.seal is not None:  # sealed at submission
        return job
    seal = SecretsSeal(pool=pool_name(broker, by), id=secrets.token_hex(16))
    keys = [_private_key(broker.settings.home).public_key()]
    service_public_key = broker.store.setting(_SERVICE_KEY_SETTING)
    if service_public_key is not None:
        keys.append(_public_key(service_public_key))
    _store_boxes(broker, seal, {_key_name(key): _encrypt(key, seal, values) for key in keys})
    return job.model_copy(update={"seal": seal})


@dataclass(frozen=True, slots=True)
class SealedBox:
    """Secrets encrypted on the submitter's machine for the key of a service. ``key``: its name; ``id``: of the seal;
    ``box``: base64."""

    key: str
    id: str
    box: str


def service_key(broker: Broker) -> str | None:
    """The public key of the service (base64), for which secrets may be sealed anywhere; None if there is none."""
    return broker.store.setting(_SERVICE_KEY_SETTING)


def encrypt_for_service(key: str, values: Mapping[str, str]) -> SealedBox:
    """The values encrypted for a service's public key (base64). Pure, except for randomness. Raises ValueError for an
    invalid key."""
    seal, public = SecretsSeal(pool="", id=secrets.token_hex(16)), _public_key(key)
    return SealedBox(_key_name(public), seal.id, _encrypt(public, seal, values))


def attach_sealed_box(broker: Broker, job: Job, box: SealedBox, *, by: Actor) -> Job:
    """The job with secrets that were sealed elsewhere, kept in the run store. Raises `InvalidInput` if the box is not
    for the present key of the service, and `Unreachable`."""
    current_key = service_key(broker)
    if current_key is None or box.key != _key_name(_public_key(current_key)):
        raise InvalidInput(
            "the secrets are sealed for another key than this server's", where="sealed", hint="submit again"
        )
    seal = SecretsSeal(pool=pool_name(broker, by), id=box.id)
    if not _store_boxes(broker, seal, {box.key: box.box}):
        raise InvalidInput("there is a seal with this id", where="sealed", hint="submit again")
    return job.model_copy(update={"seal": seal})


def _store_boxes(broker: Broker, seal: SecretsSeal, boxes: Mapping[str, str]) -> bool:
    with store_errors():
        return open_folder(broker, seal.pool).create(_path(seal), to_bytes({"version": _VERSION, "boxes": boxes}))


def erase(broker: Broker, job: Job) -> None:
    """Delete the sealed secrets of a job that no longer needs them. Idempotent. Raises `Unreachable`."""
    if job.seal is not None:
        with store_errors():
            open_folder(broker, job.seal.pool).delete(_path(job.seal))


def publish_service_key(broker: Broker, *, leads: bool = True) -> None:
    """Publish this process's key, so that secrets of later submissions by anybody are sealed for it as well.
    ``leads``: no other service looks after jobs. Idempotent.

    Raises `StoreProblem`, and `InvalidInput` if another service has this store and another key, or left open jobs with
    secrets that only its key opens."""
    public, published = _base64(_private_key(broker.settings.home).public_key().public_bytes_raw()), service_key(broker)
    if published == public:
        return
    if published is not None:
        with broker.store.reading() as reader:
            if not leads or any(view.job.seal and not view.cancel_requested for view in reader.unclosed()):
                raise InvalidInput(
                    "the secrets of this store's jobs are sealed for another key",
                    where=str(broker.settings.home / KEY_FILE),
                    hint="copy that file from the home folder of the store's other service; if it is lost, stop other"
                    " services and cancel the jobs with secrets",
                )
    if leads:
        broker.store.set_setting(_SERVICE_KEY_SETTING, public)


class JobSecrets:
    """The secrets that a reconciler passes on to launches. Keeps the names in the seals it has opened, never values."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._opens: dict[str, frozenset[str]] = {}  # by seal, the names in it

    def missing(self, job: Job) -> Sequence[str]:
        """The names of the job's required secrets that this process has neither in a seal nor in its environment.
        Raises `Unreachable`."""
        absent = missing_secrets(job)
        if not absent or job.seal is None:
            return absent
        if job.seal.id not in self._opens:
            values = self._open(job.seal)
            if values is None:
                return absent
            self._opens[job.seal.id] = frozenset(values)
        return [name for name in absent if name not in self._opens[job.seal.id]]

    def of(self, view: JobView, account: ProcessAccount) -> Mapping[str, str]:
        """The job's secrets as they were at submission. If they are not sealed for this process, they come from its
        environment, provided that it runs as the job's user.

        Raises `SecretsAbsent` if some are missing; a process that has them may launch the job later.
        """
        job = view.job
        values = self._open(job.seal) if job.seal is not None else None
        if values is not None:
            return {name: values.get(name, "") for name in job.secrets}
        if job.secrets and view.user != account.user:
            raise SecretsAbsent(job.secrets, owner=view.user, process_user=account.user)
        if absent := missing_secrets(job):
            raise SecretsAbsent(absent)
        return {name: os.environ.get(name, "") for name in job.secrets}

    def erase(self, view: JobView) -> None:
        """Delete the job's sealed secrets; those of a task are deleted with its array's. Idempotent. Raises
        `Unreachable`."""
        if view.job.task is not None:
            return
        if view.job.seal is not None:
            self._opens.pop(view.job.seal.id, None)
        erase(self._broker, view.job)

    def _open(self, seal: SecretsSeal) -> dict[str, str] | None:
        """None if the seal was not made for this process, was erased, or belongs to another job."""
        key_path = self._broker.settings.home / KEY_FILE
        if not key_path.is_file():
            return None
        from cryptography.exceptions import InvalidTag

        key = _private_key(self._broker.settings.home)
        with store_errors():
            content = open_folder(self._broker, seal.pool).read(_path(seal))
        try:
            box = json.loads(content or b"{}")["boxes"][_key_name(key.public_key())]
            values = json.loads(_suite().decrypt(base64.b64decode(box), key, info=_info(seal)))
        except (KeyError, TypeError, ValueError, InvalidTag):
            return None
        return {str(name): str(value) for name, value in values.items()}


def _path(seal: SecretsSeal) -> str:
    return f"sealed/{seal.id}.json"


def _info(seal: SecretsSeal) -> bytes:
    return f"gpubroker secrets {_VERSION} {seal.id}".encode()


def _encrypt(key: X25519PublicKey, seal: SecretsSeal, values: Mapping[str, str]) -> str:
    return _base64(_suite().encrypt(json.dumps(dict(values)).encode(), key, info=_info(seal)))


def _suite() -> Any:
    from cryptography.hazmat.primitives import hpke

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


def _private_key(home: Path) -> X25519PrivateKey:
    """The key of a home folder, made at first use. If several processes make it at once, the first one's counts."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key_path = home / KEY_FILE
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not key_path.exists():
            draft = home / f".{KEY_FILE}.{secrets.token_hex(8)}"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(X25519PrivateKey.generate().private_bytes_raw())
            try:
                os.link(draft, key_path)  # fails if another process was faster
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        return X25519PrivateKey.from_private_bytes(key_path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreProblem(
            f"the key for secrets cannot be read or made: {error}",
            where=str(key_path),
            hint="change the owner or mode of the folder; if the key is damaged, delete it, export the secrets of"
            " waiting jobs and run any gpubroker command",
        ) from error


def _public_key(text: str) -> X25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(base64.b64decode(text))


def _key_name(key: X25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
