"""A cluster with pretended GPUs, a real SkyPilot API server that launches on it, a bucket, and the settings with which
gpubroker uses them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from broker.core.market.capacity import TAG
from tests.cloud.ec2 import running_aws
from tests.cloud.image import USER, mounted_image
from tests.kubernetes.apart import lacking_namespaces, remove_empty_cgroups
from tests.kubernetes.binaries import cannot_build, cluster_binaries
from tests.kubernetes.cluster import CONTEXT, GATEWAY, NODES, KubernetesCluster, running_cluster
from tests.kubernetes.images import IMAGES
from tests.skypilot_server import SkyServer, address, api_ports

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "planted-secret-key"}
_PRICE_PER_GPU = "0.45"
PRICES = {f"h100:{count}": str(Decimal(_PRICE_PER_GPU) * count) for count in (1, 2, 4, 8)}  # USD an hour
_PROGRAMS = ("ip", "unshare", "rsync", "curl", "wget", "sshd", "sudo", "socat")
_RUN = 1000  # for the kernel: unlike those of `tests.cloud`, such runs see none of each other's mounts
_GRACE = 3  # seconds that a pod has which is taken away
# Pods have this machine's files, but for what is its own; what SkyPilot would install with apt need only be there.
_HIDDEN = ("run", "tmp", "root", "var-tmp")
_STAND_INS = ("nc", "lspci", "fusermount")


def missing() -> str:
    """What is not there that a cluster of its own needs; empty when all is."""
    if find_spec("sky") is None or find_spec("kubernetes") is None:
        return "extra `skypilot` is not installed"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    if lacking := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        packages = "iproute2, rsync, curl, wget, openssh-server, sudo and socat"
        return f"not installed: {', '.join(lacking)} (Debian packages {packages})"
    if not Path("/usr/bin/python3").exists():
        return "pods need the system's own Python, /usr/bin/python3"
    return lacking_namespaces() or cannot_build()


@dataclass
class KubernetesLab:
    """``environment``: what gpubroker and SkyPilot need to work with this cluster and with no other."""

    folder: Path
    cluster: KubernetesCluster
    server: SkyServer
    environment: Mapping[str, Any]

    def pods(self) -> list[dict[str, Any]]:
        """Those of jobs."""
        return self.cluster.get("pods", f"--selector={TAG}")

    def run_pod(self, name: str, node: str, gpus: int, *, key: str = "", urgent: bool = False) -> None:
        """A pod with so many GPUs of that node, up when this returns. ``key``: of the attempt whose it is said to be.
        ``urgent``: of a higher priority class than others; it takes what it needs from them."""
        urgency = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
        container = {
            "name": "main",
            "image": IMAGES["box"],
            "imagePullPolicy": "Never",
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **({"priorityClassName": "urgent"} if urgent else {}),
        }
        about = {"name": name, "labels": {TAG: key} if key else {}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
        self.cluster.apply({**urgency, "value": 1000}, pod)
        self.cluster.until(f"{name} is up", "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=5s")

    def take(self, node: str, gpus: int) -> None:
        """Somebody with a higher priority class needs so many GPUs of that node."""
        self.run_pod("rival", node, gpus, urgent=True)

    def give_back(self) -> None:
        """The pod of the higher priority class is done."""
        self.cluster.kubectl("delete", "pod", "rival")

    def drain(self, node: str) -> None:
        self.cluster.kubectl("drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")

    def clear(self) -> None:
        """No pod but the system's, and every node takes some."""
        self.cluster.kubectl("delete", "pods", "--all", "--grace-period=1", "--timeout=60s")
        for node in NODES:
            self.cluster.kubectl("uncordon", node)

    def last_words(self) -> str:
        return "\n".join([self.cluster.last_words(), self.server.last_words()])


@contextmanager
def running_lab(folder: Path) -> Iterator[KubernetesLab]:
    """Build it in that folder and start it; end it with all that runs in it."""
    import boto3

    remove_empty_cgroups()
    with ExitStack() as stack:
        stack.callback(remove_empty_cgroups)
        stack.enter_context(mounted_image(folder / "machine", _RUN))
        binaries = cluster_binaries()
        cluster = stack.enter_context(running_cluster(folder, binaries, folder / "machine"))
        aws = stack.enter_context(running_aws(GATEWAY))  # its S3
        keys = {name.lower(): value for name, value in KEYS.items()}
        boto3.client("s3", endpoint_url=aws.url, region_name="us-east-1", **keys).create_bucket(Bucket="runs")
        _sky_home(folder / "home")
        port, metrics_port = api_ports()
        server = SkyServer(folder, {**cluster.environment, **address(port)})
        stack.callback(server.end)
        server.start_api(port, metrics_port)
        yield KubernetesLab(folder, cluster, server, {**server.environment, **_settings(aws.url)})


def _settings(bucket: str) -> dict[str, str]:
    """gpubroker's: run folders in a bucket, which pods reach with the keys that are handed to them."""
    handed = {**KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": bucket, "AWS_ALLOW_HTTP": "true"}
    return {
        **handed,
        "GPUBROKER_RUNS": "s3://runs/jobs",
        "GPUBROKER_ENGINES__SKYPILOT__ENVIRONMENT": " ".join(handed),
        "GPUBROKER_ENGINES__SKYPILOT__LOOK": "2",
        "GPUBROKER_ENGINES__SKYPILOT__REFRESH": "5",
        "GPUBROKER_PROVIDERS__KUBERNETES__CONTEXTS": CONTEXT,
        "GPUBROKER_PROVIDERS__KUBERNETES__PRICE_PER_GPU_HOUR": _PRICE_PER_GPU,
    }


def _sky_home(home: Path) -> None:
    """SkyPilot's own settings, and a catalogue; no other is fetched."""
    stand_ins = "; ".join(f"command -v {name} || ln -s /bin/false /usr/local/bin/{name}" for name in _STAND_INS)
    container = {
        "image": IMAGES["machine"],
        "imagePullPolicy": "Never",
        "env": [{"name": "HOME", "value": f"/home/{USER}"}],
        "volumeMounts": [{"name": f"own-{name}", "mountPath": "/" + name.replace("-", "/")} for name in _HIDDEN],
    }
    pod = {
        "terminationGracePeriodSeconds": _GRACE,
        "containers": [container],
        "volumes": [{"name": f"own-{name}", "emptyDir": {}} for name in _HIDDEN],
    }
    settings = {
        "allowed_clouds": ["kubernetes"],  # others would be asked for over a network that is not there
        "kubernetes": {
            "provision_timeout": 10,
            "post_provision_runcmd": [stand_ins],
            "pod_config": {"spec": pod},
        },
    }
    (home / ".sky").mkdir(parents=True, exist_ok=True)
    (home / ".sky" / "config.yaml").write_text(yaml.safe_dump(settings))
    tags = ("custom-cpu-ubuntu", "custom-gpu-ubuntu", "custom-gpu-ubuntu-2004")
    images = "".join(f"skypilot:{tag},,ubuntu,22.04,{IMAGES['machine']},20260101\n" for tag in tags)
    for name, text in {
        "common/accelerators.csv": "AcceleratorName,Clouds\nH100,\"['AWS']\"\n",
        "common/metadata.csv": "GPU,MemoryGB\nH100,80\n",
        "kubernetes/images.csv": f"Tag,Region,OS,OSVersion,ImageId,CreationDate\n{images}",
    }.items():
        place = home / ".sky" / "catalogs" / "v8" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
