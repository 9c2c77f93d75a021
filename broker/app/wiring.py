"""`Broker`: the parts of one broker, made from settings and registries when first needed.

`cli.py` passes the registries in, so nothing here knows a concrete provider, engine or rule.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from broker.core.actors import ProcessAccount
from broker.core.errors import InvalidInput, MissingExtra, Problem, StoreProblem
from broker.core.market.offers import SANDBOX, Offer, OfferQuery, SkippedRow
from broker.core.ports import Engine, PolicySet, Provider
from broker.core.registry import Registry, load
from broker.core.values.clock import Clock, ScaledClock, SystemClock
from broker.settings import Settings

if TYPE_CHECKING:
    from broker.store import Store
    from broker.store.jobs.reader import StoreReader


class BuildProvider(Protocol):
    """Makes a provider from its name and settings. Raises `UnknownName`, `MissingExtra` or `InvalidInput`."""

    def __call__(self, name: str, *, clock: Clock, settings: Mapping[str, Any] | None = None) -> Provider: ...


class CatalogueReader(Protocol):
    """A catalog file whose header was recognized. ``layout``: the name of its layout."""

    @property
    def layout(self) -> str: ...

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """The rows of the file. Raises `InvalidInput` if the file cannot be used."""


class OpenCatalogue(Protocol):
    """Opens a file as prices of ``provider`` at ``dated`` (UTC). Raises `InvalidInput` for an unknown layout."""

    def __call__(self, file: Path, *, provider: str, dated: datetime, now: datetime) -> CatalogueReader: ...


@dataclass(frozen=True, slots=True)
class Registries:
    """The registered implementations.

    ``providers`` and ``engines``: name → ``module:attribute``. ``local_providers``: providers that need no network:
    they fill an empty store, are not watched for stale prices, and their rows are not compared with the market.
    ``quick_providers``: those without a login that answer within seconds, asked before the first prices are shown.
    ``command``: starts this program again, for the background reconciler. ``policy_schema``: the JSON Schema of policy
    files. ``*_extras``: the optional install that a name needs.
    """

    providers: Registry
    build_provider: BuildProvider
    engines: Registry
    load_policies: Callable[[Mapping[str, str]], PolicySet]
    policy_schema: Callable[[], Mapping[str, Any]]
    open_catalogue: OpenCatalogue
    local_providers: tuple[str, ...]
    command: tuple[str, ...]
    quick_providers: tuple[str, ...] = ()
    provider_extras: Mapping[str, str] = field(default_factory=dict)
    engine_extras: Mapping[str, str] = field(default_factory=dict)


def engine_settings(name: str, engine: Any, configured: Mapping[str, Any]) -> Any:
    """The validated settings of ``[engines.NAME]``. Raises `InvalidInput` that names each invalid setting."""
    model = getattr(engine, "Settings", None)
    if model is None:
        raise InvalidInput(f"engine {name!r} has no settings", where=f"[engines.{name}]", hint="remove the section")
    try:
        return model.model_validate(dict(configured))
    except ValidationError as error:
        problems = [
            Problem(0, 0, ".".join(map(str, error_detail["loc"])), error_detail["msg"])
            for error_detail in error.errors()
        ]
        raise InvalidInput(
            f"engine {name!r} cannot be set up: {'; '.join(map(str, problems))}",
            where=f"[engines.{name}]",
            hint=f"settings of this engine: {', '.join(model.model_fields)}",
            problems=problems,
        ) from error


class Broker:
    """The parts of one broker over one store, in one process. The acting person is not part of it: use cases take an
    `Actor`.

    Thread-safe; several processes may use one store. ``account``: under which jobs run on this machine. ``store`` and
    ``clock``: replace those from the settings and the store; the caller closes a store that it passes.
    """

    def __init__(
        self,
        settings: Settings,
        registries: Registries,
        account: ProcessAccount,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.registries = registries
        self.account = account
        # Reentrant, because making one part needs others.
        self._making = threading.RLock()
        self._store = store
        self._clock = clock
        self._providers: dict[str, Provider] = {}
        self._engines: dict[str, Engine] = {}
        self._not_installed: dict[str, MissingExtra] = {}
        self._policy: tuple[int, PolicySet] | None = None  # with its version number, so that both change at once
        # With and without the simulated market: the time until which no local source is due (`market.freshen`).
        self.fresh_until: dict[bool, datetime] = {}
        self.asking_local_sources = threading.Lock()

    @property
    def store(self) -> Store:
        """The store, created or upgraded if needed, with the home folder if that is its default place. Raises
        `StoreProblem`."""
        if self._store is None:
            with self._making:
                if self._store is None:
                    self._store = self._open_store()
        return self._store

    def _open_store(self) -> Store:
        from broker.store import open_store  # SQLAlchemy is not needed for --help

        if self.settings.store is None:
            home = self.settings.home
            try:
                home.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise StoreProblem(
                    f"the folder cannot be made: {error.strerror or error}",
                    where=str(home),
                    hint="change the owner or mode of the folder above, or set GPUBROKER_HOME",
                ) from error
        return open_store(self.settings.store_url, clock=SystemClock())

    def over(self, store: Store) -> Broker:
        """This broker over another store, with the same clock, market and engines. The caller closes the store."""
        copied = copy(self)
        copied._store, copied._clock, copied._policy = store, self.clock, None
        copied.fresh_until = dict(self.fresh_until)
        return copied

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._store is not None:
            self._store.close()

    @property
    def clock(self) -> Clock:
        """The machine's clock; for a store with accelerated time (`set_clock`), that clock."""
        if self._clock is None:
            with self._making:
                if self._clock is None:
                    self._clock = self._clock_of_the_store()
        return self._clock

    def _clock_of_the_store(self) -> Clock:
        anchor = self.store.setting("clock")
        if not anchor:
            return SystemClock()
        origin, starts_at, scale = anchor.split(" ")
        return ScaledClock(datetime.fromisoformat(origin), datetime.fromisoformat(starts_at), float(scale))

    def set_clock(self, scale: float, starts_at: datetime) -> None:
        """Start the time of this new, sandbox-only store at ``starts_at`` (UTC) and run it ``scale`` times as fast."""
        self.store.keep_setting("clock", f"{datetime.now(UTC).isoformat()} {starts_at.isoformat()} {scale}")
        with self._making:
            self._clock = None

    def _settings_of(self, name: str) -> dict[str, Any]:
        return dict(self.settings.providers.get(name, {}))

    def _sandbox(self) -> dict[str, Any]:
        """Scenario, seed and start of the store's simulated market, fixed at first use so that all processes see the
        same market."""
        from broker.engines.sandbox.market import DEFAULT_SEED  # few commands use the simulated market

        stored = self.store.setting("sandbox")
        if stored is None:
            configured = self._settings_of(SANDBOX)
            initial = {
                "scenario": configured.get("scenario", "default"),
                "seed": int(configured.get("seed", DEFAULT_SEED)),
                "starts_at": self.clock.now().isoformat(),
            }
            stored = self.store.keep_setting("sandbox", json.dumps(initial))
        market = json.loads(stored)
        return {**market, "starts_at": datetime.fromisoformat(market["starts_at"])}

    def provider(self, name: str) -> Provider:
        """A provider by name. Raises `UnknownName`, `MissingExtra`, or `InvalidInput` for invalid settings."""
        with self._making:
            if name not in self._providers:
                settings = self._sandbox() if name == SANDBOX else self._settings_of(name)
                self._providers[name] = self.registries.build_provider(name, clock=self.clock, settings=settings)
            return self._providers[name]

    def forget_provider(self, name: str) -> None:
        """Create a new instance when the provider is next needed, because a call may hang in the present one."""
        with self._making:
            self._providers.pop(name, None)

    def engine(self, name: str) -> Engine:
        """An engine by name. Raises `UnknownName`, `MissingExtra`, or `InvalidInput` for invalid settings."""
        with self._making:
            if name in self._not_installed:
                raise self._not_installed[name].with_traceback(None)
            if name not in self._engines:
                try:
                    self._engines[name] = self._make_engine(name)
                except MissingExtra as missing:
                    self._not_installed[name] = missing  # every plan needs it, and searching for a package is slow
                    raise
            return self._engines[name]

    def _make_engine(self, name: str) -> Engine:
        make = load(self.registries.engines, name, "engine", extras=self.registries.engine_extras)
        settings: dict[str, Any] = self._sandbox() if name == SANDBOX else {}
        if configured := self.settings.engines.get(name):
            settings["settings"] = engine_settings(name, make, configured)
        engine: Engine = make(home=self.settings.home / "engines" / name, clock=self.clock, **settings)
        return engine

    def policy(self, look: StoreReader | None = None) -> PolicySet:
        """The active policy set as of ``look``, or now; an empty one if none was ever activated. Loaded again only
        after a change. Raises `InvalidInput` if this version cannot read it."""
        number = self.store.policy_number() if look is None else look.policy_number()
        cached = self._policy
        if cached is None or cached[0] != number:
            active_version = self.store.active_policy() if look is None else look.active_policy()
            policy_set = self.registries.load_policies(active_version.files if active_version else {})
            cached = self._policy = (active_version.number if active_version else 0, policy_set)
        return cached[1]
