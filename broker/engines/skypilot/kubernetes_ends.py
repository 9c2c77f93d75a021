"""Who ended a pod, by the events of its cluster, which are kept for an hour, and by the pod itself while it ends.

The scheduler reports that it preempted a pod for one of a higher priority class; the node controllers and the kubelet
report that a node failed or lacked room. After a drain, only the state of its node (it accepts no pods) differs from
that after an ordinary deletion. Reasons: Kubernetes, reference of the API, Pod conditions (DisruptionTarget, from 1.26
on), and the events of kube-scheduler, the taint manager and the kubelet. Read 2026-11-25.
"""

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.core.errors import LoginMissing, Unreachable
from broker.core.market.capacity import TAG
from broker.engines.skypilot.evidence import KUBERNETES, CloudStatement, CloudVerdict, name_on_cloud
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


def kubernetes_statement(key: str, context: str, list_items: KubectlList | None = None) -> CloudStatement:
    """The statement of the cluster of that context about the pods of a key.

    Raises `Unreachable` if it does not answer, `LoginMissing` without the rights to list pods, events and nodes.
    ``list_items``: for tests.
    """
    query = list_items or kubectl_list
    pods = query(context, ["pods", "--all-namespaces", f"--selector={TAG}={key}"])
    if any(_is_running(item) for item in pods):
        return CloudStatement(CloudVerdict.RUNS, "Kubernetes: the pod runs")
    event_query = ["events", "--all-namespaces", "--field-selector=involvedObject.kind=Pod"]
    events = [item for item in query(context, event_query) if _is_about(item, key)]
    reasons = [str(item.get("reason")) for item in events]
    statements = [*map(_pod_statement, pods), _statement_from(reasons, _TAKEN_EVENTS, _BROKE_EVENTS)]
    names = _nodes(pods, events)
    return next(filter(None, statements), None) or _node_statement(names, query(context, ["nodes"]) if names else [])


def kubectl_list(context: str, words: Sequence[str]) -> list[Any]:
    """Raises `Unreachable` and `LoginMissing`."""
    hint = "who ended a pod is asked with kubectl: it takes the rights to list pods, events and nodes"
    command = ["kubectl", f"--context={context}", f"--request-timeout={_ANSWER_WITHIN}", "get", *words, "--output=json"]
    try:
        result = subprocess.run(  # noqa: S603 (a fixed command; no shell reads its arguments)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"kubectl did not answer within {_TIMEOUT:.0f} s", where=_WHERE) from error
    except OSError as error:
        raise LoginMissing(f"kubectl cannot be run: {error.strerror or error}", where=_WHERE, hint=hint) from error
    error_text = " ".join(result.stderr.split())[:300]
    if result.returncode and re.search(r"\b(Forbidden|Unauthorized|does not exist|must be logged in)\b", error_text):
        raise LoginMissing(error_text, where=_WHERE, hint=hint)
    try:
        items = json.loads(result.stdout)["items"] if not result.returncode else None
    except (ValueError, KeyError, TypeError):
        items = None
    if not isinstance(items, list):
        raise Unreachable(f"kubectl: {error_text or 'no list'}", where=_WHERE)
    return items


def _is_running(pod: Mapping[str, Any]) -> bool:
    ending = (pod.get("metadata") or {}).get("deletionTimestamp") is not None
    return not ending and (pod.get("status") or {}).get("phase") in ("Pending", "Running")


def _pod_statement(pod: Mapping[str, Any]) -> CloudStatement | None:
    """The statement of a pod that is ending about itself."""
    status = pod.get("status") or {}
    targets = [condition for condition in status.get("conditions") or () if condition.get("type") == "DisruptionTarget"]
    reasons = [str(condition.get("reason")) for condition in targets] + [str(status.get("reason") or "")]
    return _statement_from(reasons, _TAKEN_CONDITIONS, _BROKE_CONDITIONS)


def _statement_from(
    reasons: Sequence[str], taken_reasons: frozenset[str], broke: frozenset[str]
) -> CloudStatement | None:
    for known_reasons, says in ((taken_reasons, CloudVerdict.TAKEN), (broke, CloudVerdict.BROKE)):
        for reason in reasons:
            if reason in known_reasons:
                return CloudStatement(says, f"Kubernetes: {reason}")
    return None


def _is_about(event: Mapping[str, Any], key: str) -> bool:
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
    names = {str((pod.get("spec") or {}).get("nodeName") or "") for pod in pods}
    for event in events:
        if assigned := _ASSIGNED.search(str(event.get("message") or "")):
            names.add(assigned[1])
    return names - {""}


def _node_statement(names: set[str], nodes: Sequence[Mapping[str, Any]]) -> CloudStatement:
    """The statement about nodes: a deleted pod was ended on request, unless its node is being drained or is gone."""
    nodes_by_name = {str(node["metadata"]["name"]): node for node in nodes}
    for name in sorted(names):
        if name not in nodes_by_name:
            return CloudStatement(CloudVerdict.TAKEN, f"Kubernetes: node {name} is gone")
        if (nodes_by_name[name].get("spec") or {}).get("unschedulable"):
            return CloudStatement(CloudVerdict.TAKEN, f"Kubernetes: node {name} is cordoned")
    if not names:
        return CloudStatement(CloudVerdict.UNKNOWN, "Kubernetes has no record of the pod any more")
    return CloudStatement(CloudVerdict.ASKED_FOR, "Kubernetes: the pod was deleted, and no event says why")
