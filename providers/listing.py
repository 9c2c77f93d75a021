"""Providers whose offers are the rows of an HTTP API, with an API key or without: the parts that they share."""

from collections.abc import Callable, Iterator, Mapping
from os import environ
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import SecretStr

from broker.core.errors import Malformed, NoLogin
from broker.core.market.offers import SkippedRow
from broker.core.values.clock import Clock
from providers.http import Api, HttpSettings, Url, endpoint, setting, usable_key
from providers.rows import short

_MAX_PAGES = 100


class ListSettings(HttpSettings):
    """``base_url``: the URL above the list's path."""

    base_url: Url


class KeyedSettings(ListSettings):
    """``api_key``: default: the provider's environment variable."""

    api_key: SecretStr | None = None


ListSettingsT = TypeVar("ListSettingsT", bound=ListSettings)
KeyedSettingsT = TypeVar("KeyedSettingsT", bound=KeyedSettings)


class ListProvider(Generic[ListSettingsT]):
    """``document``: what is read, for `gpubroker doctor`; ``per_second``: the calls that the server allows."""

    name: str
    Settings: ClassVar[type[Any]]
    document: ClassVar[str]
    per_second: ClassVar[float | None] = None

    def __init__(self, *, clock: Clock, settings: ListSettingsT | None = None) -> None:
        self._clock = clock
        self._settings: ListSettingsT = settings or self.Settings()

    def _open(self, login_hint: str = "") -> Api:
        url, hint = self._settings.base_url, login_hint
        return Api(self.name, url, self._settings, self._clock, login_hint=hint, per_second=self.per_second)

    def describe_setup(self) -> Mapping[str, Any]:
        """See `broker.app.providers.DescribesSetup`."""
        return {"endpoints": {self.document: endpoint(self.name, "base_url", self._settings.base_url)}, "logins": {}}


class KeyedProvider(ListProvider[KeyedSettingsT]):
    """``title``: the provider's name in messages; ``variable``: the environment variable that may hold the key;
    ``needs``: the kind of key; ``adds``: the data that a key adds."""

    title: ClassVar[str]
    variable: ClassVar[str]
    needs: ClassVar[str] = "an API key"
    adds: ClassVar[str]

    def __init__(
        self, *, clock: Clock, settings: KeyedSettingsT | None = None, environment: Mapping[str, str] = environ
    ) -> None:
        super().__init__(clock=clock, settings=settings)
        self._key = usable_key(self._settings.api_key) or usable_key(environment.get(self.variable))
        self._how = f"set {self.variable} or {setting(self.name, 'api_key')} to {self.needs}"

    def _open(self, login_hint: str = "") -> Api:
        """An `Api` for calls with the key. Raises `NoLogin` without one."""
        if self._key is None:
            message = f"{self.title}'s prices need an API key, and none is set"
            raise NoLogin(message, where=self.name, hint=self._how)
        return super()._open(login_hint or self._how)

    def describe_setup(self) -> Mapping[str, Any]:
        login = {"found": self._key is not None, "how": self._how, "adds": self.adds}
        return {**super().describe_setup(), "logins": {"api_key": login}}


def rows_of(answer: object, key: str, where: str) -> list[Any]:
    """The list ``key`` of an answer. Raises `Malformed`."""
    rows = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise Malformed(f"no {key} in the answer", where=where)
    return rows


def pages(ask: Callable[[str], Any], key: str, total_key: str, where: str) -> Iterator[object]:
    """The rows of the pages 1, 2, … up to the announced total; fewer are counted as a `SkippedRow`. ``ask``: queries
    the page of that number. Raises `Malformed`, and what ``ask`` raises."""
    received = total = 0
    for page in range(1, _MAX_PAGES + 1):
        answer = ask(str(page))
        rows = rows_of(answer, key, where)
        yield from rows
        received, total = received + len(rows), answer.get(total_key)
        if isinstance(total, bool) or not isinstance(total, int) or total < 0:
            yield SkippedRow("malformed_row", f"{total_key} is {short(total)}")
            return
        if received >= total or not rows:
            break
    if received < total:
        yield SkippedRow("incomplete_answer", f"{received} of {short(total)} announced {key}")
