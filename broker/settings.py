"""Settings: ``gpubroker.toml`` (the user's configuration folder, then the working directory), then ``GPUBROKER_*``.

``__`` nests: ``GPUBROKER_PROVIDERS__AWS__PRICE_LIST_URL``. Environment variables win over files; flags win over both.
"""

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

import platformdirs
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from broker.core.access.people import TeamRole
from broker.core.actors import Role
from broker.core.errors import InvalidInput, Problem, did_you_mean, place
from broker.core.notices import Severity
from broker.core.values.money import Money
from broker.core.values.provider_names import place_name, provider_name
from broker.core.values.units import parse_duration, parse_size, print_duration, print_size

FILE = "gpubroker.toml"
PREFIX = "GPUBROKER_"

# Schemes of object stores for run folders: those that both obstore and the agent can open.
_RUNS_SCHEMES = ("file", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")

# Variables with the prefix that are not settings: those that the agent sets for a job's command, those of our own
# processes, and the login at a team server (`broker.server.client.logins`).
_NOT_SETTINGS = (
    "ATTEMPT",
    "CHECKPOINT_DIR",
    "GIT_COMMIT",
    "JOB_ID",
    "NODES",
    "NOTICE_FILE",
    "NOTICE_SECONDS",
    "OUTPUT_DIR",
    "PROGRESS_FILE",
    "RANK",
    "RECONCILER_TURN",
    "RUN_FOLDER",
    "SERVER",
    "TOKEN",
)


def settings_files() -> tuple[Path, ...]:
    """The settings files that are read; a setting in a later file replaces the same setting of an earlier one."""
    return Path(platformdirs.user_config_dir("gpubroker")) / FILE, Path(FILE)


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_duration), PlainSerializer(print_duration), Field(gt=timedelta(0))]


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(_size), PlainSerializer(print_size), Field(gt=0)]


class PollSettings(BaseModel):
    """How one provider is polled. ``every``: the poll interval of `gpubroker serve`; None: derived from the maximum age
    of its prices. ``timeout``: the longest one poll may take. ``max_age``: offers older than this are not planned with;
    None: the provider's own limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: Duration | None = None
    timeout: Duration = timedelta(minutes=15)
    max_age: Duration | None = None


class ServeSettings(BaseModel):
    """``listen``: the address, HOST:PORT, at which `gpubroker serve` answers ``/healthz`` and ``/metrics``, or ``off``.
    ``token``: the bearer token for ``/metrics`` and the details of ``/healthz``; without it there are no metrics.
    ``public_url``: where people reach the server, such as ``https://gpus.example.org``, if a proxy in front of it adds
    TLS; links, cookies and checks of host and origin follow it. ``trusted_proxies``: addresses and networks of such
    proxies, whose ``X-Forwarded-For`` says who asks.
    ``jobs_here``: jobs that people submit over the network may run on this machine: under the account of
    the service, which can read its database and its providers' credentials. ``requests_per_minute``: of one token,
    without uploads and downloads of files. ``max_uploads``: bytes of one person's uploads in all. ``access_log``: one
    JSON line for each request in ``access.log`` of GPUBROKER_HOME, 50 MB in all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: str = "127.0.0.1:9464"
    token: SecretStr | None = None
    public_url: str | None = None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    jobs_here: bool = False
    requests_per_minute: int = Field(default=600, ge=1, le=1_000_000)
    max_uploads: Size = 100 * 10**9
    access_log: bool = True

    @field_validator("public_url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or parts.username:
            raise ValueError(f"expected https://HOST without a path; got {url!r}")
        return parts.geturl()


class RouteSettings(BaseModel):
    """What one recipient of alerts is told. ``teams``: only what is about one of these, or of their patterns; none:
    all. ``at_least``: the least severity (``info``, ``warning``, ``failure``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    teams: tuple[str, ...] = ()
    at_least: Severity = Severity.INFO


class ChargeSettings(BaseModel):
    """When a difference between charged and metered cost raises an alert: if it exceeds both the share ``alert_over``
    of the metered amount (0.05: 5 %) and the amount ``alert_above`` (USD)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alert_over: float = Field(default=0.05, ge=0)
    alert_above: Money = Money.usd(1)


class SignInSettings(BaseModel):
    """Signing in at the page of `gpubroker serve` with the organization's identity provider (OpenID Connect).

    ``issuer``: its address, exactly as it calls itself; ``client_id`` and ``client_secret``: of gpubroker there (None:
    a public client). The provider must allow the address ``https://SERVER/sign-in/callback``. ``name_claim``: the name
    that a new person gets; ``groups_claim``: their groups. ``groups``: the role that each group gives, such as
    ``{ml = "nlp:member", controllers = "finops"}``; roles named there follow the groups at every sign-in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    client_id: str
    client_secret: SecretStr | None = None
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    groups: dict[str, str] = Field(default_factory=dict)

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, url: str) -> str:
        parts = urlsplit(url)
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or not (parts.scheme == "https" or (is_local and parts.scheme == "http")):
            raise ValueError(f"expected the https address of the identity provider; got {url!r}")
        return url

    @field_validator("groups")
    @classmethod
    def _check_roles(cls, groups: dict[str, str]) -> dict[str, str]:
        for group, role_name in groups.items():
            team, _, role = role_name.rpartition(":")
            role_names = [member.value for member in (TeamRole if team else Role)]
            if role not in role_names:
                expected = f"expected TEAM:ROLE with {', '.join(TeamRole)}, or {', '.join(Role)}"
                raise ValueError(f"{group}: {role_name!r} is not a role{did_you_mean(role, role_names)}; {expected}")
        return groups


class Settings(BaseSettings):
    """All settings with their defaults.

    ``home``: the data folder (store, run folders, logs).
    ``store``: an SQLAlchemy URL; None: SQLite under ``home``. The folder of a SQLite file named here must exist, so
    that a misspelled path does not create a second, empty store.
    ``runs``: the object-store URL of run folders; None: a folder under ``home``.
    ``runs_location``: the location of that object store as ``provider/region``, used for data transfer cost; None: for
    S3 the region in ``AWS_REGION``.
    ``runs_role``: for run folders in S3, the ARN of an AWS role whose sessions nodes get, each narrowed to its job's
    folder and renewed while it runs; None: nodes use an identity of their own, which usually reaches the whole bucket.
    ``runs_role_seconds``: how long a session, or a signature in Azure, lasts, and so how long a node can save without a
    broker.
    ``runs_narrowed``: for run folders in Google Cloud Storage and Azure: nodes get tokens of this process's Google
    login, or signatures of its Entra login, each narrowed to its job's folder (in Azure only in accounts with a
    hierarchical namespace, else to the container) and renewed while it runs; else they use an identity of their own.
    ``max_snapshot``: the maximum size of a job's working folder and local file mounts together.
    ``policy``: files or folders, separated by ``:``, that an empty personal store adopts at first use.
    ``providers``, ``engines``: settings by name.
    ``agreements``: providers with which the organization has an agreement, by its name: ``hipaa = ["aws", "gcp"]``;
    `--where compliance=hipaa` limits advice to them.
    ``prices``: how each provider is polled, by provider name.
    ``charges``: when a difference between charged and metered cost raises an alert.
    ``notify``: recipients of alerts: Apprise URLs by name. They are secrets: never stored and never printed.
    ``routes``: which alerts each recipient gets, by its name in ``notify``; without a route: everything.
    ``sign_in``: the identity provider at which people sign in to the web UI; None: with tokens and one-time links.
    ``reconcile_every``: wall-clock seconds between two reconciler passes.
    ``offline``: `offers` and `plan` do not use the network before they show the first prices.
    """

    model_config = SettingsConfigDict(
        env_prefix="GPUBROKER_", env_nested_delimiter="__", env_ignore_empty=True, extra="forbid"
    )

    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("gpubroker")))
    store: str | None = None
    runs: str | None = None
    runs_location: str | None = None
    runs_role: str | None = None
    runs_role_seconds: int = Field(default=3600, ge=900, le=43200)
    runs_narrowed: bool = False
    max_snapshot: Size = 10 * 10**9
    policy: str = ""
    providers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    agreements: dict[Annotated[str, Field(pattern="^[a-z0-9_-]+$")], tuple[str, ...]] = Field(default_factory=dict)
    prices: dict[str, PollSettings] = Field(default_factory=dict)
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict)
    notify: dict[str, SecretStr] = Field(default_factory=dict)
    routes: dict[str, RouteSettings] = Field(default_factory=dict)
    serve: ServeSettings = ServeSettings()
    sign_in: SignInSettings | None = None
    charges: ChargeSettings = ChargeSettings()
    reconcile_every: float = Field(default=1.0, gt=0, le=3600)
    offline: bool = False
    settle_every: float = Field(default=60.0, ge=0)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
            env_settings,
            TomlConfigSettingsSource(settings_cls, toml_file=settings_files(), deep_merge=True),
        )

    @field_validator("runs")
    @classmethod
    def _check_runs(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if not parts.scheme:
            raise ValueError(f"{url!r} is not a URL; for a folder write {Path(url).absolute().as_uri()}")
        if parts.scheme not in _RUNS_SCHEMES:
            expected = "expected file:///FOLDER, s3://BUCKET/…, gs://BUCKET/… or az://CONTAINER/…"
            raise ValueError(f"unsupported scheme {parts.scheme}:// for run folders; {expected}")
        if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
            raise ValueError("expected an absolute path with three slashes: file:///FOLDER")
        if parts.scheme != "file" and not parts.netloc:
            raise ValueError(f"the URL names no bucket; expected {parts.scheme}://BUCKET/…")
        return url

    @field_validator("runs_location")
    @classmethod
    def _check_location(cls, place: str | None) -> str | None:
        if place is not None and not re.fullmatch(r"[a-z0-9_]+/[a-z0-9-]+", place):
            raise ValueError(f"{place!r} is not a location; expected provider/region, such as gcp/us-central1")
        return place and place_name(place)

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{self.home / 'gpubroker.db'}"

    @property
    def runs_url(self) -> str:
        return self.runs or (self.home / "runs").absolute().as_uri()


def read_settings() -> Settings:
    """The settings in force. Raises `InvalidInput` that names the wrong variable, or the file, line and key."""
    try:
        return Settings()
    except ValidationError as error:
        raise_errors(
            [(issue["loc"], _error_message(issue["loc"], issue["type"], issue["msg"])) for issue in error.errors()],
            settings_files(),
        )
    except ValueError as error:  # the file is not valid TOML
        raise_unreadable(error, settings_files())


def _error_message(key: tuple[int | str, ...], kind: str, message: str) -> str:

    if kind != "extra_forbidden":
        return message.removeprefix("Value error, ")
    sections: dict[str, type[BaseModel]] = {
        "prices": PollSettings,
        "routes": RouteSettings,
        "serve": ServeSettings,
        "sign_in": SignInSettings,
        "charges": ChargeSettings,
    }
    return not_a_setting(key, sections[str(key[0])].model_fields if key[1:] else Settings.model_fields)


def variable(*key: int | str) -> str:
    """The variable of a setting: ``GPUBROKER_PRICES__AWS__EVERY`` for ``prices``, ``aws``, ``every``."""
    return PREFIX + "__".join(str(part).upper() for part in key)


def setting_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are settings, with their values."""
    known = {variable(key) for key in Settings.model_fields}
    return {name: value for name, value in environment.items() if name.upper().split("__")[0] in known}


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """``GPUBROKER_*`` variables that are not settings, each with its warning."""
    known_variables = [variable(key) for key in Settings.model_fields]
    warnings = {}
    for name in sorted(environment):
        rest = name.removeprefix(PREFIX)
        if rest == name or rest in _NOT_SETTINGS or rest.startswith("TEST_"):
            continue
        if name.upper().split("__")[0] not in known_variables:
            suggestion = did_you_mean(name, known_variables) or f"; known: {', '.join(known_variables)}"
            warnings[name] = f"{name} is not a setting{suggestion}"
    return warnings


def check_names(settings: Settings, providers: Collection[str], engines: Collection[str]) -> None:
    """Raises `InvalidInput` for settings of an unknown provider or engine."""
    errors = [
        (
            (section, name),
            f"unknown {kind} {name!r}{did_you_mean(provider_name(name), known)}",
            f"{kind}s: {', '.join(sorted(known))}",
        )
        for kind, section, names, known in (
            ("provider", "providers", settings.providers, providers),
            ("provider", "prices", settings.prices, providers),
            ("engine", "engines", settings.engines, engines),
            ("recipient", "routes", settings.routes, settings.notify),
        )
        for name in names
        if name not in known
    ]
    if errors:
        raise_errors([(key, message) for key, message, _ in errors], settings_files(), hint=errors[0][2])


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment variables that give another process the same settings, whatever its working directory."""
    routes = {name: route.model_dump(mode="json", exclude_none=True) for name, route in settings.routes.items()}
    values = {
        "home": str(settings.home.absolute()),
        "store": settings.store_url,
        "runs": settings.runs_url,
        **({"runs_location": settings.runs_location} if settings.runs_location else {}),
        "max_snapshot": print_size(settings.max_snapshot),
        "policy": settings.policy,
        "providers": json.dumps(settings.providers),
        "agreements": json.dumps(settings.agreements),
        "prices": json.dumps(
            {name: poll_settings.model_dump(exclude_none=True) for name, poll_settings in settings.prices.items()}
        ),
        "engines": json.dumps(settings.engines),
        "notify": json.dumps({name: address.get_secret_value() for name, address in settings.notify.items()}),
        "routes": json.dumps(routes),
        "reconcile_every": str(settings.reconcile_every),
        "settle_every": str(settings.settle_every),
    }
    return {variable(name): value for name, value in values.items()}


Key = tuple[int | str, ...]

_TABLE = re.compile(r"\s*\[([^\[\]]+)\]")
_LINE = re.compile(r"\s*([\w.\"'-]+)\s*=")
_TOML_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")


def not_a_setting(key: Key, known: Iterable[str]) -> str:
    """The message for a key that is not in ``known``: with a suggestion, or with the list of known keys."""
    names = [name.upper() if _from_environment(key) else name for name in sorted(known)]
    return f"is not a setting{did_you_mean(str(key[-1]), names) or '; known here: ' + ', '.join(names)}"


def raise_errors(errors: Sequence[tuple[Key, str]], files: Sequence[Path], *, hint: str = "") -> NoReturn:
    """Raises `InvalidInput` for these keys, each with its position and its error.

    ``files``: the files that were read; later ones take precedence. Lines are named by number and never printed, as
    they may contain secrets.
    """
    located = [_locate(key, message, files) for key, message in errors]
    messages = [
        f"{place(where, problem.line, problem.column)}: {problem.key}: {problem.message}" if where else str(problem)
        for where, problem in located
    ]
    raise InvalidInput(
        messages[0] if len(messages) == 1 else "\n  ".join(("", *messages)).lstrip(" "),
        where="settings",
        hint=hint or f"check the GPUBROKER_* variables and {', '.join(map(str, files))}",
        problems=[problem for _, problem in located],
    )


def raise_unreadable(error: ValueError, files: Sequence[Path]) -> NoReturn:
    """Raises `InvalidInput` for the file that is not valid TOML, with the line of the error."""
    for file in files:
        try:
            tomllib.loads(file.read_text("utf-8"))
        except OSError:
            continue
        except ValueError as problem:
            position = _TOML_POSITION.search(str(problem))
            line, column = (int(position[1]), int(position[2])) if position and position[1] else (0, 0)
            message = f"is not valid TOML: {_TOML_POSITION.sub('', str(problem))}"
            problems = [Problem(line, column, "", message)]
            raise InvalidInput(
                f"{place(str(file), line, column)}: {message}", where="settings", problems=problems
            ) from problem
    raise InvalidInput(str(error), where="settings", hint=f"fix {' or '.join(map(str, files))}") from error


def _locate(key: Key, message: str, files: Sequence[Path]) -> tuple[str, Problem]:
    """The file (empty for a variable, or if no file contains the key) and the problem."""
    if _from_environment(key):
        return "", Problem(0, 0, variable(*key), message)
    depth, file_index, line = max(
        (depth, i, line) for i, (depth, line) in enumerate(_nearest(key, file) for file in files)
    )
    return str(files[file_index]) if depth else "", Problem(line, 0, ".".join(map(str, key)), message)


def _from_environment(key: Key) -> bool:
    """Whether a variable sets the key, a part of it, or its section (as JSON)."""
    full = variable(*key)
    return any(
        name.startswith(PREFIX) and (f"{full}__".startswith(f"{name}__") or name.startswith(f"{full}__"))
        for name in map(str.upper, os.environ)
    )


def _nearest(key: Key, file: Path) -> tuple[int, int]:
    """The number of leading parts of the key that the file contains, and the 1-based line of the last of them.

    TOML readers keep no positions, so this searches for tables and keys at the start of lines; a key inside ``{ }``
    gets the line of its section.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return 0, 0
    key_parts = tuple(str(part) for part in key)
    table: tuple[str, ...] = ()
    depth, line_number = 0, 0
    for number, line in enumerate(lines, 1):
        if table_match := _TABLE.match(line):
            path = table = _parts(table_match[1])
        elif line_match := _LINE.match(line):
            path = (*table, *_parts(line_match[1]))
        else:
            continue
        common = min(len(path), len(key_parts))
        if common > depth and path[:common] == key_parts[:common]:
            depth, line_number = common, number
    return depth, line_number


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
