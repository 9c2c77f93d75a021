"""Settings: ``gpubroker.toml`` (working directory, then the user's configuration folder), then ``GPUBROKER_*``.

``__`` nests: ``GPUBROKER_PROVIDERS__AWS__PRICE_LIST_URL``. Environment variables win over files; flags win over both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from broker.core.errors import InvalidInput, Problem

FILE = "gpubroker.toml"


def files() -> tuple[Path, ...]:
    """Where settings are looked for; later files win."""
    return Path(platformdirs.user_config_dir("gpubroker")) / FILE, Path(FILE)


class Settings(BaseSettings):
    """All settings with their defaults.

    ``home``: where data lies (store, run folders, logs). ``store``: an SQLAlchemy URL; None is SQLite under ``home``.
    ``runs``: the object-store URL of run folders; None is a folder under ``home``. ``policy``: files or folders that
    an empty personal store adopts at first use, separated by ``:``. ``providers``: settings by provider name.
    ``reconcile_every``: wall-clock seconds between two looks at running jobs.
    """

    model_config = SettingsConfigDict(env_prefix="GPUBROKER_", env_nested_delimiter="__", extra="forbid")

    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("gpubroker")))
    store: str | None = None
    runs: str | None = None
    policy: str = ""
    providers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    reconcile_every: float = Field(default=1.0, gt=0, le=3600)
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
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=files())

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{self.home / 'gpubroker.db'}"

    @property
    def runs_url(self) -> str:
        return self.runs or (self.home / "runs").absolute().as_uri()


def read_settings() -> Settings:
    """The settings in force. Raises `InvalidInput` naming the variable or key that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [
            Problem(0, 0, ".".join(str(part) for part in found["loc"]), found["msg"]) for found in error.errors()
        ]
        raise InvalidInput(
            "; ".join(str(problem) for problem in problems),
            where="settings",
            hint=f"see GPUBROKER_* variables and {', '.join(map(str, files()))}",
            problems=problems,
        ) from error
    except ValueError as error:  # not TOML
        raise InvalidInput(str(error), where="settings", hint=f"mend {' or '.join(map(str, files()))}") from error


def as_environment(settings: Settings) -> dict[str, str]:
    """The variables that give another process, wherever it is started, the same settings."""
    values = {
        "home": str(settings.home.absolute()),
        "store": settings.store_url,
        "runs": settings.runs_url,
        "policy": settings.policy,
        "providers": json.dumps(settings.providers),
        "reconcile_every": str(settings.reconcile_every),
        "settle_every": str(settings.settle_every),
    }
    return {f"GPUBROKER_{name.upper()}": value for name, value in values.items()}
