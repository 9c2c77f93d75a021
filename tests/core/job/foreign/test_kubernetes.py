"""Manifests as people write them."""

from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.foreign import convert
from tests.core.job.foreign.read_back import read_back

HEAD = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n"


def job(container: str, pod: str = "", spec: str = "") -> str:
    pod_lines = "".join(f"      {line}\n" for line in pod.splitlines())
    spec_lines = "".join(f"  {line}\n" for line in spec.splitlines())
    lines = "".join(f"          {line}\n" for line in container.splitlines())
    start = f"{HEAD}{spec_lines}  template:\n    spec:\n      restartPolicy: Never\n"
    return f"{start}{pod_lines}      containers:\n        - name: main\n{lines}"


IMAGE = "image: pytorch/pytorch:2.4.0\n"
CASES: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    (
        job(IMAGE + "command: [python, train.py]\nargs: ['--lr', '1e-4']\nresources:\n  limits: {nvidia.com/gpu: 1}\n"),
        {"name": "train", "image": "docker:pytorch/pytorch:2.4.0"},
        "python train.py --lr 1e-4\n",
        ("nvidia.com/gpu: 1 names no model",),
    ),
    (
        job(
            IMAGE + "command: ['/bin/bash', '-c', 'pip install -r r.txt && python a.py']\n"
            "resources:\n  limits: {nvidia.com/gpu: '8', cpu: '96', memory: 1000Gi}\n",
            "nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n",
        ),
        {"machine": "H100:8", "cpus": 96, "memory": 1000},
        "pip install -r r.txt && python a.py\n",
        (),
    ),
    (
        job(
            IMAGE + "command: [python, a.py]\nresources: {limits: {nvidia.com/gpu: 2}, requests: {cpu: 500m, memory: "
            "512Mi}}\n",
            "nodeSelector:\n  cloud.google.com/gke-accelerator: nvidia-tesla-t4\n  pool: ml\n"
            "tolerations: [{key: gpu, operator: Exists}]\n",
        ),
        {"machine": "T4:2", "cpus": 0.5, "memory": 0.5},
        "python a.py\n",
        ("nodeSelector pool=ml",),
    ),
    (
        job(
            IMAGE + "command: [sh, -ec, 'echo $(GREETING)']\nenv:\n- {name: GREETING, value: hello}\n"
            "- name: HF_TOKEN\n  valueFrom: {secretKeyRef: {name: hf, key: token}}\n"
            "- name: NODE\n  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}\n",
        ),
        {"envs": {"GREETING": "hello"}, "secrets": ("HF_TOKEN",)},
        "set -e\necho $(GREETING)\n".replace("$(GREETING)", "${GREETING}"),
        ("the variable NODE, from fieldRef",),
    ),
    (
        job(
            IMAGE + "command: [python, part.py]\n",
            spec="completions: 20\nparallelism: 5\ncompletionMode: Indexed\nbackoffLimit: 3\n",
        ),
        {"tasks": 20, "parallel": 5, "failures": 3},
        "python part.py\n",
        (),
    ),
    (
        job(
            IMAGE + "command: [python, a.py]\nworkingDir: /app\n",
            spec="activeDeadlineSeconds: 7200\nttlSecondsAfterFinished: 60\n",
        ),
        {"limit": "2:00:00"},
        "cd /app\npython a.py\n",
        (),
    ),
    (
        job(
            IMAGE + "command: [python, a.py]\nvolumeMounts:\n- {name: data, mountPath: /data}\n- {name: shm, "
            "mountPath: /dev/shm}\n",
            "volumes:\n- {name: data, persistentVolumeClaim: {claimName: data}}\n- {name: shm, "
            "emptyDir: {medium: Memory}}\n"
            "initContainers:\n- {name: fetch, image: busybox}\nserviceAccountName: trainer\n",
        ),
        {"mounts": {}},
        "python a.py\n",
        ("the volume data (persistentVolumeClaim) at /data", "the initContainer fetch", "serviceAccountName"),
    ),
    (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\n---\napiVersion: v1\nkind: Pod\n"
        "metadata: {generateName: try-}\n"
        "spec:\n  nodeSelector: {node.kubernetes.io/instance-type: p3.2xlarge}\n"
        "  containers: [{name: c, image: x, command: [nvidia-smi], resources: {limits: {nvidia.com/gpu: "
        "1}}}, {name: log, image: y}]\n",
        {"name": "try", "alternatives": 1},
        "nvidia-smi\n",
        ("ConfigMap conf", "the container log"),
    ),
    (
        "kind: CronJob\napiVersion: batch/v1\nmetadata: {name: nightly}\nspec:\n  schedule: '0 2 * * *'\n  "
        "jobTemplate:\n"
        "    spec: {template: {spec: {containers: [{name: c, image: x, args: [--all]}]}}}\n",
        {"name": "nightly"},
        "--all\n",
        ("schedule: 0 2 * * *",),
    ),
    (
        job(
            IMAGE + "command: [torchrun, t.py]\nresources: {limits: {nvidia.com/gpu: 8}}\n",
            "subdomain: train\naffinity:\n  nodeAffinity:\n    "
            "requiredDuringSchedulingIgnoredDuringExecution:\n      nodeSelectorTerms:\n"
            "      - matchExpressions: [{key: k8s.amazonaws.com/accelerator, operator: In, "
            "values: [nvidia-a100-80gb]}]\n",
            "completions: 4\nparallelism: 4\ncompletionMode: Indexed\n",
        ),
        {"nodes": 4, "machine": "A100-80GB:8", "tasks": 0},
        "torchrun t.py\n",
        ("$SKYPILOT_NODE_RANK",),
    ),
    (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: share, annotations: {gpu-memory: 4096, run.ai/fraction: 0.5}}\n"
        "spec:\n  containers:\n  - {name: a, image: x, args: [run], "
        "resources: {limits: {nvidia.com/gpu.shared: 2}}}\n",
        {"name": "share"},
        "run\n",
        (
            "gpu-memory: 4096, of the pod",
            "run.ai/fraction: 0.5, of the pod",
            "gpu.shared: 2: each part of a card becomes a whole card",
        ),
    ),
    (
        job("image: registry.example.org/train:1\n"),
        {"image": "docker:registry.example.org/train:1"},
        "exit 1",
        ("the command is the image's own",),
    ),
]


@pytest.mark.parametrize(("text", "expected", "run", "lost"), CASES)
def test_a_manifest_becomes_a_job(text: str, expected: dict[str, Any], run: str, lost: tuple[str, ...]) -> None:
    figures, command, left = read_back(text, "a Kubernetes manifest")
    assert {name: figures[name] for name in expected} == expected
    assert run in command
    for words in lost:
        assert words in left


def test_other_kinds_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="Deployment cannot be converted; expected one of Job"):
        convert("apiVersion: apps/v1\nkind: Deployment\nspec: {}\n", "a.yaml")
