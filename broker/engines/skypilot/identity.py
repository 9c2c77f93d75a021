"""SkyPilot's settings for one launch: the cloud credentials that it copies to a node, as few as possible, and when a
machine that was never set up powers off.

By default, SkyPilot copies the credential files of every cloud that its server may use to every node. With these
settings, a machine gets an identity of its own if SkyPilot creates one for that cloud, and no credential files of
clouds that have a setting for this. SkyPilot 0.14 has no such setting for the clouds of `untold`: keep their
credentials off its server, or accept that every node can read them.

SkyPilot arms its autodown once a machine is set up. If its server ends before that, for example because a laptop is
closed, the machine would run on. On AWS, where commands for the first boot are possible, it powers off; the setup of an
attempt cancels that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from broker.engines.skypilot.node import power_off_commands

_OWN, _NONE, _COPIED = "SERVICE_ACCOUNT", "NO_UPLOAD", "LOCAL_CREDENTIALS"
_SETTING = "remote_identity"
UNTOUCHED = 180
"""A machine on AWS powers off unless it is set up within so many minutes after its start."""
_AT_BOOT = {"aws": "post_provision_runcmd"}  # the setting with which SkyPilot 0.14 passes commands to cloud-init


def identities(cloud: str) -> dict[str, dict[str, str]]:
    """SkyPilot's settings for a launch on that cloud, by cloud. The user's own settings stay, unless they
    copy files.
    """
    config, registry = import_module("sky.skypilot_config"), import_module("sky.utils.registry")
    found = {}
    for name, known in registry.CLOUD_REGISTRY.items():
        if not _can_be_told(name):
            continue
        chosen = config.get_nested((name, _SETTING), None)
        if name == cloud and known.supports_service_account_on_remote():
            found[name] = {_SETTING: _OWN if _copies(chosen) else chosen}
        elif name == cloud or _copies(chosen):
            found[name] = {_SETTING: _NONE}
    return found


def powering_off(cloud: str, image: str = "") -> dict[str, dict[str, list[str]]]:
    """SkyPilot's settings by which a machine of that cloud powers off unless it is set up; empty for container images,
    as the setup in a container cannot cancel it. The user's own settings stay.
    """
    if cloud not in _AT_BOOT or image.startswith("docker:"):
        return {}
    config = import_module("sky.skypilot_config")
    own = config.get_nested((cloud, _AT_BOOT[cloud]), None) or []
    return {cloud: {_AT_BOOT[cloud]: [*own, *power_off_commands(UNTOUCHED)]}}


def untold() -> list[str]:
    """The clouds whose credential files SkyPilot copies to every node, if its server has them."""
    registry = import_module("sky.utils.registry")
    return sorted(name for name in registry.CLOUD_REGISTRY if not _can_be_told(name))


def set_for_launch(
    task: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]] | None = None
) -> AbstractContextManager[None]:
    """During the block, SkyPilot's settings of this process include those for the task's cloud, and ``more``, by cloud.

    A launch sends them with its request.
    """
    cloud = str(task["resources"]["infra"]).partition("/")[0].lower()
    override = import_module("sky.skypilot_config").override_skypilot_config
    settings: dict[str, dict[str, Any]] = {name: dict(found) for name, found in identities(cloud).items()}
    for told in (powering_off(cloud, str(task["resources"].get("image_id") or "")), more or {}):
        for name, found in told.items():
            settings.setdefault(name, {}).update(found)
    context: AbstractContextManager[None] = override(settings)
    return context


def _copies(chosen: object) -> bool:
    return chosen is None or _COPIED in str(chosen).upper()


def _can_be_told(cloud: str) -> bool:
    sections = import_module("sky.utils.schemas").get_config_schema()["properties"]
    return _SETTING in sections.get(cloud, {}).get("properties", {})
