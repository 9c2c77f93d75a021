"""The active policy and its versions; as results, for the command line and the API."""

from __future__ import annotations

from broker.app.results.policies import ActivePolicy, PolicyInForce, PolicyVersionList
from broker.app.wiring import Broker


def in_force(broker: Broker, *, files: bool = False) -> PolicyInForce:
    """The active policy; ``files``: with the texts of its files."""
    active = broker.store.active_policy()
    return PolicyInForce(active=active and ActivePolicy.of_set(active, broker.policy(), files=files))


def versions(broker: Broker) -> PolicyVersionList:
    """Every activation, the newest first."""
    return PolicyVersionList.of(broker.store.policy_history())
