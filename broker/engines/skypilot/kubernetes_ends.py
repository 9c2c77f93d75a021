"""Who ended a pod, by the events of its cluster, which are kept for an hour, and by the pod itself while it ends.

The scheduler reports that it preempted a pod for one of a higher priority class; the node controllers and the kubelet
report that a node failed or lacked room. After a drain, only the state of its node (it accepts no pods) differs from
that after an ordinary deletion. Reasons: Kubernetes, reference of the API, Pod conditions (DisruptionTarget, from 1.26
on), and the events of kube-scheduler, the taint manager and the kubelet. Read 2026-11-25.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.core.errors import LoginMissing, Unreachable
from broker.core.market.machines import TAG
from broker.engines.skypilot.ends import KUBERNETES, name_on_cloud
from broker.engines.skypilot.evidence import CloudSays, CloudWord
from broker.engines.skypilot.task import cluster_name

_TIMEOUT = 30.0
_ANSWER_WITHIN = "10s"
_WHERE = "kubernetes"
# Reasons of a pod's condition DisruptionTarget, and of its status.
_TAKEN_CONDITIONS = frozenset({"PreemptionByScheduler", "EvictionByEvictionAPI"})
_BROKE_CONDITIONS = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet", "NodeLost"})
# Reasons of events about a pod.
_TAKEN_EVENTS = frozenset({"Preempted"})
_BROKE_EVENTS = frozenset({"TaintManagerEviction", "NodeNotReady"})
_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)")

KubectlList = Callable[[str, Sequence[str]], list[Any]]
"""The items that kubectl lists in a context."""


def kubernetes_word(key: str, context: str, list_items: KubectlList | None = None) -> CloudWord:
    """The statement of the cluster of that context about the pods of a key.

    Raises `Unreachable` if it does not answer, `LoginMissing` without the rights to list pods, events and nodes.
    ``list_items``: for tests.
    """
    listed = list_items or kubectl_list
    pods = listed(context, ["pods", "--all-namespaces", f"--selector={TAG}={key}"])
    if any(_alive(one) for one in pods):
        return CloudWord(CloudSays.RUNS, "Kubernetes: the pod runs")
    about = ["events", "--all-namespaces", "--field-selector=involvedObject.kind=Pod"]
    events = [one for one in listed(context, about) if _about(one, key)]
    reasons = [str(one.get("reason")) for one in events]
    found = [*map(_of_pod, pods), _word(reasons, _TAKEN_EVENTS, _BROKE_EVENTS)]
    names = _nodes(pods, events)
    return next(filter(None, found), None) or _of_nodes(names, listed(context, ["nodes"]) if names else [])


def kubectl_list(context: str, words: Sequence[str]) -> list[Any]:
    """Raises `Unreachable` and `LoginMissing`."""
    hint = "who ended a pod is asked with kubectl: it takes the rights to list pods, events and nodes"
    command = ["kubectl", f"--context={context}", f"--request-timeout={_ANSWER_WITHIN}", "get", *words, "--output=json"]
    try:
        done = subprocess.run(  # noqa: S603 (a fixed command; no shell reads its arguments)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"kubectl did not answer within {_TIMEOUT:.0f} s", where=_WHERE) from error
    except OSError as error:
        raise LoginMissing(f"kubectl cannot be run: {error.strerror or error}", where=_WHERE, hint=hint) from error
    said = " ".join(done.stderr.split())[:300]
    if done.returncode and re.search(r"\b(Forbidden|Unauthorized|does not exist|must be logged in)\b", said):
        raise LoginMissing(said, where=_WHERE, hint=hint)
    try:
        items = json.loads(done.stdout)["items"] if not done.returncode else None
    except (ValueError, KeyError, TypeError):
        items = None
    if not isinstance(items, list):
        raise Unreachable(f"kubectl: {said or 'no list'}", where=_WHERE)
    return items


def _alive(pod: Mapping[str, Any]) -> bool:
    ending = (pod.get("metadata") or {}).get("deletionTimestamp") is not None
    return not ending and (pod.get("status") or {}).get("phase") in ("Pending", "Running")


def _of_pod(pod: Mapping[str, Any]) -> CloudWord | None:
    """The statement of a pod that is ending about itself."""
    status = pod.get("status") or {}
    targets = [one for one in status.get("conditions") or () if one.get("type") == "DisruptionTarget"]
    reasons = [str(one.get("reason")) for one in targets] + [str(status.get("reason") or "")]
    return _word(reasons, _TAKEN_CONDITIONS, _BROKE_CONDITIONS)


def _word(reasons: Sequence[str], taken: frozenset[str], broke: frozenset[str]) -> CloudWord | None:
    for known, says in ((taken, CloudSays.TAKEN), (broke, CloudSays.BROKE)):
        for reason in reasons:
            if reason in known:
                return CloudWord(says, f"Kubernetes: {reason}")
    return None


def _about(event: Mapping[str, Any], key: str) -> bool:
    """Whether the event is about a pod of the key.

    A pod that is gone has no labels any more; its name consists of SkyPilot's name of the cluster, a hash of SkyPilot's
    user, and its role in the cluster.
    """
    name = str((event.get("involvedObject") or {}).get("name") or "")
    return (
        re.fullmatch(rf"{re.escape(name_on_cloud(cluster_name(key), KUBERNETES))}-[0-9a-z]{{8}}-(head|worker\d*)", name)
        is not None
    )


def _nodes(pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> set[str]:
    """The nodes on which the pods ran."""
    found = {str((pod.get("spec") or {}).get("nodeName") or "") for pod in pods}
    for event in events:
        if assigned := _ASSIGNED.search(str(event.get("message") or "")):
            found.add(assigned[1])
    return found - {""}


def _of_nodes(names: set[str], nodes: Sequence[Mapping[str, Any]]) -> CloudWord:
    """The statement about nodes: a deleted pod was ended on request, unless its node is being drained or is gone."""
    there = {str(one["metadata"]["name"]): one for one in nodes}
    for name in sorted(names):
        if name not in there:
            return CloudWord(CloudSays.TAKEN, f"Kubernetes: node {name} is gone")
        if (there[name].get("spec") or {}).get("unschedulable"):
            return CloudWord(CloudSays.TAKEN, f"Kubernetes: node {name} is cordoned")
    if not names:
        return CloudWord(CloudSays.UNKNOWN, "Kubernetes has no record of the pod any more")
    return CloudWord(CloudSays.ASKED_FOR, "Kubernetes: the pod was deleted, and no event says why")
