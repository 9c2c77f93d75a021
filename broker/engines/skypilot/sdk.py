"""Adapter for SkyPilot's SDK: imported on first use, with typed results and the broker's errors.

Every call goes to the API server that SkyPilot is configured for (``SKYPILOT_API_SERVER_ENDPOINT``, ``sky api login``);
SkyPilot starts a local one if there is none. Changes are requests: a call returns when the request is recorded, not
when it is done.
"""

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broker.core import errors
from broker.engines.skypilot.task import power_off_commands

# SkyPilot's settings for one launch: the cloud credentials that it copies to a node, as few as possible, and when a
# machine that was never set up powers off.
#
# By default, SkyPilot copies the credential files of every cloud that its server may use to every node. With these
# settings, a machine gets an identity of its own if SkyPilot creates one for that cloud, and no credential files of
# clouds that have a setting for this. SkyPilot 0.14 has no such setting for the clouds of `clouds_without_identity`:
# keep their credentials off its server, or accept that every node can read them.
#
# SkyPilot arms its autodown once a machine is set up. If its server ends before that, for example because a laptop is
# closed, the machine would run on. On AWS, where commands for the first boot are possible, it powers off; the setup of
# an attempt cancels that.
_OWN, _NONE, _COPIED = "SERVICE_ACCOUNT", "NO_UPLOAD", "LOCAL_CREDENTIALS"
_SETTING = "remote_identity"
UNTOUCHED = 180
"""A machine on AWS powers off unless it is set up within so many minutes after its start."""
_BOOT_SETTINGS = {"aws": "post_provision_runcmd"}  # the setting with which SkyPilot 0.14 passes commands to cloud-init


def identity_settings(cloud: str) -> dict[str, dict[str, str]]:
    """SkyPilot's settings for a launch on that cloud, by cloud. The user's own settings stay, unless they
    copy files.
    """
    config, registry = import_module("sky.skypilot_config"), import_module("sky.utils.registry")
    settings = {}
    for name, cloud_type in registry.CLOUD_REGISTRY.items():
        if not _has_identity_setting(name):
            continue
        setting = config.get_nested((name, _SETTING), None)
        if name == cloud and cloud_type.supports_service_account_on_remote():
            settings[name] = {_SETTING: _OWN if _copies_credentials(setting) else setting}
        elif name == cloud or _copies_credentials(setting):
            settings[name] = {_SETTING: _NONE}
    return settings


def power_off_settings(cloud: str, image: str = "") -> dict[str, dict[str, list[str]]]:
    """SkyPilot's settings by which a machine of that cloud powers off unless it is set up; empty for container images,
    as the setup in a container cannot cancel it. The user's own settings stay.
    """
    if cloud not in _BOOT_SETTINGS or image.startswith("docker:"):
        return {}
    config = import_module("sky.skypilot_config")
    own = config.get_nested((cloud, _BOOT_SETTINGS[cloud]), None) or []
    return {cloud: {_BOOT_SETTINGS[cloud]: [*own, *power_off_commands(UNTOUCHED)]}}


def clouds_without_identity() -> list[str]:
    """The clouds whose credential files SkyPilot copies to every node, if its server has them."""
    registry = import_module("sky.utils.registry")
    return sorted(name for name in registry.CLOUD_REGISTRY if not _has_identity_setting(name))


def launch_settings(
    task: Mapping[str, Any], extra: Mapping[str, Mapping[str, Any]] | None = None
) -> AbstractContextManager[None]:
    """During the block, SkyPilot's settings of this process include those for the task's cloud, and ``extra``, by
    cloud.

    A launch sends them with its request.
    """
    cloud = str(task["resources"]["infra"]).partition("/")[0].lower()
    override = import_module("sky.skypilot_config").override_skypilot_config
    settings: dict[str, dict[str, Any]] = {name: dict(values) for name, values in identity_settings(cloud).items()}
    for cloud_settings in (power_off_settings(cloud, str(task["resources"].get("image_id") or "")), extra or {}):
        for name, values in cloud_settings.items():
            settings.setdefault(name, {}).update(values)
    context: AbstractContextManager[None] = override(settings)
    return context


def _copies_credentials(setting: object) -> bool:
    return setting is None or _COPIED in str(setting).upper()


def _has_identity_setting(cloud: str) -> bool:
    sections = import_module("sky.utils.schemas").get_config_schema()["properties"]
    return _SETTING in sections.get(cloud, {}).get("properties", {})


EXTRA = "skypilot"
_SSH_PATIENCE = 120.0  # seconds
_SERVER = "see `sky api info`; SKYPILOT_API_SERVER_ENDPOINT selects the server"
_CLOUDS = "`sky check` lists the clouds its API server may use, and what is missing"

# Exceptions which mean that the server does not answer, including those of the HTTP library. A failed request has other
# exceptions of SkyPilot or Python, such as `NetworkError` and `OSError`, and remains failed.
_SERVER_ERRORS = frozenset({"ApiServerConnectionError", "ServerTemporarilyUnavailableError"})
_HTTP = "requests"

# The meaning of SkyPilot's exceptions, by name, so that nothing is imported. The most derived listed class counts; see
# sky/exceptions.py of 0.14.
_MEANINGS: Mapping[str, tuple[type[errors.BrokerError], str]] = {
    # SkyPilot does not tell the reason: no capacity, no quota, or a missing permission.
    "ResourcesUnavailableError": (errors.NoCapacity, "`sky logs --provision CLUSTER` has the cloud's own words"),
    "ProvisionPrechecksError": (errors.TryAnotherOffer, _CLOUDS),
    "NotSupportedError": (errors.TryAnotherOffer, ""),
    "ProvisionUnsupportedError": (errors.TryAnotherOffer, ""),
    "NoCloudAccessError": (errors.LoginMissing, _CLOUDS),
    "InvalidCloudCredentials": (errors.LoginMissing, _CLOUDS),
    "InvalidCloudConfigs": (errors.LoginMissing, _CLOUDS),
    "CloudUserIdentityError": (errors.LoginMissing, _CLOUDS),
    "ClusterOwnerIdentityMismatchError": (errors.LoginMissing, _CLOUDS),
    "ApiServerAuthenticationError": (errors.LoginMissing, "sky api login"),
    "PermissionDeniedError": (errors.LoginMissing, "sky api login"),
    "UserRequestRejectedByPolicy": (errors.NotAllowed, "SkyPilot's own admin policy decided this"),
    "RestfulPolicyError": (errors.AskAPerson, "SkyPilot's own admin policy does not answer"),
    "APIVersionMismatchError": (errors.AskAPerson, "install the SkyPilot version of the API server"),
    "APINotSupportedError": (errors.AskAPerson, "install the SkyPilot version of the API server"),
    "InvalidSkyPilotConfigError": (errors.InvalidInput, "see ~/.sky/config.yaml"),
    "StorageError": (errors.InvalidInput, "see `file_mounts`"),
    "StorageSpecError": (errors.InvalidInput, "see `file_mounts`"),
    "ConcurrentWorkerExhaustedError": (errors.Throttled, ""),
    "ExecutionPoolFullError": (errors.Throttled, ""),
    "ApiServerConnectionError": (errors.Unreachable, _SERVER),
    "ServerTemporarilyUnavailableError": (errors.Unreachable, _SERVER),
    "RequestInterruptedError": (errors.Unreachable, _SERVER),
    "KubeAPIUnreachableError": (errors.Unreachable, _CLOUDS),
    "NetworkError": (errors.Unreachable, ""),
    "FetchClusterInfoError": (errors.Unreachable, ""),
    "ClusterStatusFetchingError": (errors.Unreachable, ""),
    "CloudError": (errors.Unreachable, ""),
    "ImportError": (errors.AskAPerson, "SkyPilot lacks a dependency for that cloud: install the one it names"),
    "OSError": (errors.Unreachable, _SERVER),  # the HTTP library's errors are OSErrors
    "JSONDecodeError": (errors.Unreachable, _SERVER),  # a proxy answered
    # Every other exception may pass, and the call is tried again; these are about the task as it is written.
    "NotImplementedError": (errors.GiveUp, ""),
    "ValueError": (errors.GiveUp, ""),
    "TypeError": (errors.GiveUp, ""),
}
# Advice on errors that SkyPilot reports only as text: its server turns exceptions of libraries into `CloudError`.
_ADVICE: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"database is locked", re.IGNORECASE),
        "another process writes the database of SkyPilot's server; a server for several people needs PostgreSQL",
    ),
    (
        re.compile(r"\bcatalogs?/v\d+/"),
        "SkyPilot's server has no catalog of that cloud and cannot fetch it: give it a way to "
        "raw.githubusercontent.com, or copy ~/.sky/catalogs from another machine",
    ),
)
# Words in plain ValueErrors about offers that SkyPilot's catalog does not know.
_OFFER_WORDS = re.compile(r"\b(instance types?|regions?|zones?|accelerators?|catalog)\b", re.IGNORECASE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PRINTING = threading.Lock()  # the redirection of standard output applies to all threads


@dataclass(frozen=True, slots=True)
class SkyRequest:
    """A request to the API server. ``status``: pending, running, succeeded, failed or cancelled."""

    id: str
    name: str
    status: str

    @property
    def finished(self) -> bool:
        return self.status in ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class SkyCluster:
    """A cluster as last seen by the API server. ``status``: init, up or stopped. ``since``: its last launch."""

    name: str
    status: str
    since: datetime
    why: str


class Sdk:
    """The SDK, for the API server that it is configured for."""

    def __init__(self, module: Any = None, url: str | None = None) -> None:
        """``module`` and ``url``: replacements of SkyPilot and its server, for tests. Raises `MissingExtra` if SkyPilot
        is not installed; does not import it yet, because that takes seconds."""
        if module is None and find_spec("sky") is None:
            raise errors.MissingExtra(EXTRA, "engine 'skypilot'")
        self._module, self._url = module, url

    @cached_property
    def _sky(self) -> Any:
        if self._module is not None:
            return self._module
        with (
            _PRINTING,
            redirect_stdout(sys.stderr),
            _broker_errors(),
        ):  # its log goes to standard output as it is at this moment
            return import_module("sky")

    @cached_property
    def place(self) -> str:
        """A short hash of the API server; for a local one, with its machine and home."""
        with _broker_errors():
            parts = urlsplit(self._url or _server_url())
        words = [parts.hostname or "", str(parts.port or ""), parts.path]
        if parts.hostname in ("127.0.0.1", "localhost", "0.0.0.0", "::1"):  # noqa: S104 (compared with, not bound to)
            with suppress(OSError):
                words.append(Path("/etc/machine-id").read_text("ascii").strip())
            words.append(str(Path.home()))
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]

    def may_use(self, cloud: str) -> bool:
        """Whether the server has a login with which it may start machines of that cloud. It tries it now."""
        sky = self._sky  # its first use takes the lock
        with _PRINTING, redirect_stdout(sys.stderr), _broker_errors():
            # `sky.check` is a module
            sdk = import_module("sky.client.sdk") if self._module is None else sky
            by_workspace = sky.get(sdk.check((cloud,), verbose=False))
        return any(
            name.lower() == cloud and "compute" in abilities
            for clouds in by_workspace.values()
            for name, abilities in clouds.items()
        )

    def launch(self, config: Mapping[str, Any], cluster: str, settings: Mapping[str, Any] | None = None) -> str:
        """Request the task on a cluster of that name, which SkyPilot ends after it; returns the request's id.

        ``settings``: of SkyPilot's configuration, by cloud, for this launch alone. SkyPilot copies the task's files to
        its server first. Nodes get as few cloud credentials as SkyPilot's settings allow (`identity_settings`). Raises
        `BrokerError`.
        """
        sky = self._sky
        with _PRINTING, redirect_stdout(sys.stderr), _broker_errors():
            task = sky.Task.from_yaml_config(dict(config))
            with launch_settings(config, settings or {}) if self._module is None else nullcontext():
                return str(sky.launch(task, cluster_name=cluster, down=True))

    def requests(self, ids: Sequence[str]) -> dict[str, SkyRequest]:
        """The requests that the server still knows, by id."""
        if not ids:
            return {}
        with _broker_errors():
            return {request.id: request for request in _requests(self._sky.api_status(request_ids=list(ids)))}

    def launches(self, cluster: str) -> list[SkyRequest]:
        """Every request to launch that cluster that the server remembers, oldest first."""
        with _broker_errors():
            rows = list(self._sky.api_status(cluster_name=cluster, all_status=True))
        own = [row for row in rows if row.cluster_name == cluster and row.name.endswith("launch")]
        return list(_requests(sorted(own, key=lambda row: row.created_at)))

    def failure(self, id: str) -> errors.BrokerError | None:
        """The failure of a finished request; None if it succeeded.

        Raises `Unreachable` if the server fails, not the request.
        """
        with _broker_errors():
            try:
                self._sky.get(id)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (as in `_broker_errors`)
                if _is_server_error(error):
                    raise to_broker_error(error) from None
                return to_broker_error(error)
        return None

    def clusters(self, names: Sequence[str] | None) -> dict[str, SkyCluster]:
        """The clusters that the server lists, by name, as last seen; None: all."""
        if names is not None and not names:
            return {}
        with _broker_errors():
            listed = None if names is None else list(names)
            rows = self._sky.get(self._sky.status(listed, all_users=True))
            return {str(row["name"]): _cluster(row) for row in rows}

    def ends(self, days: int) -> dict[str, datetime]:
        """The ends of clusters within the last ``days`` days, by name: the latest possible times, as the server checks
        rarely and truncates to seconds. Without clusters that it believes to exist.
        """
        ends_by_name = defaultdict[str, list[Any]](list)
        with _broker_errors():
            for row in self._sky.get(self._sky.cost_report(days=days)):
                ends_by_name[str(row["name"])] += [end for _, end in row["usage_intervals"] or ()]
            last_ends = {
                name: max(map(int, ends)) + 1 for name, ends in ends_by_name.items() if ends and None not in ends
            }
        return {name: datetime.fromtimestamp(end, UTC) for name, end in last_ends.items()}

    def refresh(self, names: Sequence[str]) -> None:
        """Request that the server refresh these clusters from the clouds.

        Returns at once; `clusters` has the result later.
        """
        with _broker_errors():
            self._sky.status(list(names), refresh=self._sky.StatusRefreshMode.FORCE, all_users=True)

    def stop_launching(self, id: str) -> None:
        """Abort a request. Returns at once. Idempotent; a finished request is unchanged."""
        with _broker_errors():
            self._sky.api_cancel([id], silent=True)

    def ssh_host(self, cluster: str, node: int) -> tuple[list[str], str]:
        """OpenSSH's options for the cluster, whose configuration SkyPilot's program writes on this machine, and the
        node's name in it. The key is named explicitly: SkyPilot expands ``~`` by ``HOME``, OpenSSH by the list of
        accounts, and in a service these differ. Raises `RetryLater` if no configuration is written.
        """
        program = Path(sys.executable).with_name("sky")
        command = [str(program) if program.exists() else "sky", "status", cluster]
        generated = Path("~/.sky/generated").expanduser()
        config = generated / "ssh" / cluster
        with _broker_errors():
            try:
                result = subprocess.run(  # noqa: S603 (a program of SkyPilot's, and a name of ours)
                    command,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=_SSH_PATIENCE,
                    stdin=subprocess.DEVNULL,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise errors.RetryLater(f"`sky status {cluster}` did not answer: {error}", where="skypilot") from error
        if not config.exists():
            error_lines = _COLOURS.sub("", result.stderr or result.stdout).strip().splitlines()[-1:]
            raise errors.RetryLater(
                f"SkyPilot has no SSH configuration of {cluster}: {' '.join(error_lines)}",
                where=str(config),
                hint="`sky status` writes it once the cluster is up",
            )
        key = generated / "ssh-keys" / f"{cluster}.key"
        options = ["-F", str(config), *(["-i", str(key)] if key.exists() else [])]
        return options, cluster if node == 0 else f"{cluster}-worker{node}"

    def down(self, cluster: str) -> str:
        """Request the end of a cluster and all its machines; returns the request's id."""
        with _broker_errors():
            return str(self._sky.down(cluster))


def to_broker_error(error: BaseException) -> errors.BrokerError:
    """The broker's error for an exception of SkyPilot, without terminal colors."""
    text = _COLOURS.sub("", str(error)).strip() or type(error).__name__
    message = " ".join(text.split())[:500]
    meanings = (_MEANINGS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _MEANINGS)
    error_type, hint = next(meanings, (errors.RetryLater, ""))
    if error_type is errors.GiveUp and isinstance(error, ValueError) and _OFFER_WORDS.search(message):
        error_type, hint = errors.TryAnotherOffer, "SkyPilot's own catalog may be old, or call it otherwise"
    hint = next((advice for pattern, advice in _ADVICE if pattern.search(message)), hint)
    return error_type(message, where="skypilot", hint=hint)


def _is_server_error(error: BaseException) -> bool:
    """Whether the server does not answer, as opposed to reporting the end of a request."""
    kinds = type(error).__mro__
    return any(kind.__name__ in _SERVER_ERRORS or kind.__module__.partition(".")[0] == _HTTP for kind in kinds)


@contextmanager
def _broker_errors() -> Iterator[None]:
    """Turns any exception of SkyPilot into a `BrokerError`."""
    try:
        yield
    except errors.BrokerError:
        raise
    except Exception as error:  # noqa: BLE001 (an SDK of 100 packages; none of their exceptions may pass this border)
        raise to_broker_error(error) from None
    except SystemExit as error:  # click and SkyPilot's own checks end programs with it
        raise errors.RetryLater(f"SkyPilot ended: {error}", where="skypilot") from None


def _requests(payloads: Iterable[Any]) -> Iterator[SkyRequest]:
    for payload in payloads:
        yield SkyRequest(
            str(payload.request_id), str(payload.name), str(getattr(payload.status, "value", payload.status)).lower()
        )


def _cluster(row: Mapping[str, Any]) -> SkyCluster:
    status = row["status"]
    reason = row.get("init_status_reason") or row.get("last_event") or ""
    since = datetime.fromtimestamp(int(row["launched_at"]), UTC)
    return SkyCluster(
        str(row["name"]), str(getattr(status, "value", status)).lower(), since, " ".join(str(reason).split())[:200]
    )


def _server_url() -> str:
    url: Callable[[], str] = import_module("sky.server.common").get_server_url
    return os.environ.get("SKYPILOT_API_SERVER_ENDPOINT") or url()
