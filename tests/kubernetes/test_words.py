"""What a real cluster says: of its capacity, and of who ended a pod."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.core.market.offers import Availability, Offer, OfferQuery
from broker.core.values.clock import SystemClock
from broker.engines.skypilot.evidence import CloudVerdict
from broker.engines.skypilot.machine_ends import kubernetes_statement
from providers.kubernetes import KubernetesProvider, KubernetesProviderSettings
from tests.kubernetes.cluster import CONTEXT, GPUS, NODES
from tests.kubernetes.lab import KubernetesLab

pytestmark = [pytest.mark.kubernetes, pytest.mark.system]
KEY = "count-abc123-1"
POD = f"{KEY}-fcd1e5cf-head"  # as SkyPilot names it


@pytest.fixture(autouse=True)
def as_somebody(lab: KubernetesLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("KUBECONFIG", "PATH"):
        monkeypatch.setenv(name, lab.environment[name])
    yield
    lab.clear()


def free(count: int) -> tuple[int | None, Availability]:
    settings = KubernetesProviderSettings(contexts=(CONTEXT,))
    rows = KubernetesProvider(clock=SystemClock(), settings=settings).offers(OfferQuery())
    (found,) = (row for row in rows if isinstance(row, Offer) and row.count == count)
    assert (found.accelerator, found.region) == ("H100", CONTEXT)
    return found.slots, found.availability


def test_offers_are_what_nodes_have_free(lab: KubernetesLab) -> None:
    assert free(GPUS) == (len(NODES), Availability.AVAILABLE)
    lab.run_pod("other", NODES[0], 2)
    assert free(GPUS) == (1, Availability.AVAILABLE)
    assert free(2) == (7, Availability.AVAILABLE)
    lab.run_pod(POD, NODES[1], GPUS, key=KEY)
    assert free(GPUS) == (1, Availability.UNAVAILABLE), "our own is counted, and nothing is free"
    lab.cluster.kubectl("cordon", NODES[0])
    assert free(GPUS) == (1, Availability.UNAVAILABLE)


def test_a_pod_that_is_preempted_says_so(lab: KubernetesLab) -> None:
    lab.run_pod(POD, NODES[0], GPUS, key=KEY)
    assert kubernetes_statement(KEY, CONTEXT).verdict is CloudVerdict.RUNS
    lab.take(NODES[0], GPUS)
    word = kubernetes_statement(KEY, CONTEXT)
    assert (word.verdict, word.explanation) == (CloudVerdict.TAKEN, "Kubernetes: Preempted")


def test_a_drained_node_is_told_from_a_pod_that_somebody_deleted(lab: KubernetesLab) -> None:
    drained, deleted = KEY.replace("-1", "-2"), KEY.replace("-1", "-3")
    lab.run_pod(POD.replace(KEY, drained), NODES[0], GPUS, key=drained)
    lab.run_pod(POD.replace(KEY, deleted), NODES[1], GPUS, key=deleted)
    lab.drain(NODES[0])
    lab.cluster.kubectl("delete", "pod", POD.replace(KEY, deleted))
    assert kubernetes_statement(drained, CONTEXT).verdict is CloudVerdict.TAKEN
    assert kubernetes_statement(deleted, CONTEXT).verdict is CloudVerdict.ASKED_FOR
