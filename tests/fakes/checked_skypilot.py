"""The engine `skypilot` over an API server that only says which clouds it may use: `enabled`."""

from typing import Any

from broker.engines.skypilot.engine import Skypilot
from broker.engines.skypilot.sdk import Sdk

enabled: set[str] = set()


class _CheckingSky:
    """The module `sky`, as far as a check uses it."""

    def check(self, clouds: tuple[str, ...], verbose: bool) -> tuple[str, ...]:
        return clouds

    def get(self, clouds: tuple[str, ...]) -> dict[str, dict[str, list[str]]]:
        return {"default": {cloud.upper(): ["compute", "storage"] for cloud in clouds if cloud in enabled}}


class CheckedSkypilot(Skypilot):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts, sdk=Sdk(module=_CheckingSky(), url="http://127.0.0.1:1"))
