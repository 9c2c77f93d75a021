"""An HTTP API whose every call needs an API key: the source of the key, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Mapping
from os import environ
from typing import Any

from pydantic import SecretStr

from broker.core.errors import NoLogin
from broker.core.values.clock import Clock
from providers.http import Api, HttpSettings, Url, endpoint, setting, usable_key


class KeyedSettings(HttpSettings):
    """``api_key``: default: the provider's environment variable."""

    base_url: Url
    api_key: SecretStr | None = None


class KeyedApi:
    """``title``: the provider's name in messages. ``variable``: the environment variable that may hold the key.
    ``needs``: the kind of key."""

    def __init__(
        self,
        provider: str,
        title: str,
        variable: str,
        settings: KeyedSettings,
        clock: Clock,
        environment: Mapping[str, str] | None = None,
        needs: str = "an API key",
    ) -> None:
        self._provider, self._title, self._settings, self._clock = provider, title, settings, clock
        self.key = usable_key(settings.api_key) or usable_key(
            (environ if environment is None else environment).get(variable)
        )
        self._how = f"set {variable} or {setting(provider, 'api_key')} to {needs}"

    def open(self, *, per_second: float | None = None) -> Api:
        """An `Api` for calls with `key`. Raises `NoLogin` without one."""
        if self.key is None:
            message = f"{self._title}'s prices need an API key, and none is set"
            raise NoLogin(message, where=self._provider, hint=self._how)
        url = self._settings.base_url
        return Api(self._provider, url, self._settings, self._clock, login_hint=self._how, per_second=per_second)

    def setup(self, documents: str, adds: str) -> Mapping[str, Any]:
        """See `broker.app.doctor.providers.DescribesSetup`. ``documents``: the documents that are read. ``adds``: the
        data that a key adds."""
        return {
            "endpoints": {documents: endpoint(self._provider, "base_url", self._settings.base_url)},
            "logins": {"api_key": {"found": self.key is not None, "how": self._how, "adds": adds}},
        }
