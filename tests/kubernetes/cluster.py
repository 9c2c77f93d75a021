"""A Kubernetes cluster in a folder: etcd, the API server, its controllers and scheduler, and for each node a containerd
and a kubelet that run pods.

Everything is in the namespaces that `tests.kubernetes.apart` made: addresses and ports are fixed, because no other
cluster is in there, and all of it ends with them. Two nodes are two kubelets on this machine. GPUs are pretended: they
stand in the nodes' status and labels, and nothing is behind them.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.images import IMAGES, write_images

CONTEXT = "lab"
NODES = ("node-a", "node-b")
GPUS = 8
GATEWAY = "10.97.0.1"  # of the pods; here also everything that they reach of this machine
_PODS = "10.97.{number}.0"
_SERVICES, _API = "10.98.0.0/24", "10.98.0.1"  # the API server's own address, where pods look for it
_ETCD = "http://127.0.0.1:2379"
_WITHIN = 60.0
# What a kubelet would set for the whole machine and never set back: it finds these values there already.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass
class KubernetesCluster:
    """``binaries``: of `tests.kubernetes.binaries`. ``environment``: with which kubectl and SkyPilot reach it."""

    folder: Path
    binaries: Path
    environment: Mapping[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """What kubectl prints. ``text``: its standard input."""
        whole = [str(self.binaries / "bin" / "kubectl"), *words]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            whole, input=text, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
        return done.stdout

    def get(self, what: str, *words: str) -> list[dict[str, Any]]:
        return list(json.loads(self.kubectl("get", what, "--output=json", *words))["items"])

    def apply(self, *documents: Mapping[str, Any]) -> None:
        self.kubectl("apply", "--filename=-", text=yaml.safe_dump_all(documents))

    def start(self, name: str, *command: str | Path) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            environment = {**os.environ, **self.environment}
            self.daemons.append(
                subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
            )

    def until(self, what: str, *words: str, contains: str = "") -> None:
        """Wait until kubectl succeeds with these words, and prints that."""
        deadline = time.monotonic() + _WITHIN
        while True:
            try:
                if contains in (said := self.kubectl(*words)):
                    return
            except AssertionError as error:
                said = str(error)
            assert time.monotonic() < deadline, f"{what}: not within {_WITHIN:.0f} s: {said}\n{self.last_words()}"
            time.sleep(0.3)

    def last_words(self) -> str:
        return "\n".join(f"{one.name}: {one.read_text(errors='replace')[-2500:]}" for one in self.folder.glob("*.out"))

    def end(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait(30)
        # Pods run on until their namespaces end; their mounts would keep the folder.
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in reversed([one for one in mounted if one.startswith(f"{self.folder}/node-")]):
            subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)


@contextmanager
def running_cluster(folder: Path, binaries: Path, machine: Path) -> Iterator[KubernetesCluster]:
    """Start one in that folder. ``machine``: the root of the machine image that SkyPilot's pods have."""
    home = folder / "home"
    for name in ("pki", "home/.kube"):
        (folder / name).mkdir(parents=True)
    path = os.pathsep.join([str(binaries / "bin"), os.environ["PATH"], "/usr/sbin", "/sbin"])
    config = home / ".kube" / "config"
    cluster = KubernetesCluster(folder, binaries, {"HOME": str(home), "KUBECONFIG": str(config), "PATH": path})
    _network()
    _kernel(folder / "kernel")
    config.write_text(yaml.safe_dump(_credentials(folder / "pki")))
    config.chmod(0o600)
    try:
        _control_plane(cluster, config)
        write_images(folder / "images", binaries / "bin" / "busybox")
        for number, name in enumerate(NODES, start=1):
            _node(cluster, config, name, number, machine)
        for name in NODES:
            cluster.until(f"{name} is ready", "wait", "--for=condition=Ready", f"node/{name}", "--timeout=5s")
        cluster.until("the default service account is there", "get", "serviceaccount", "default")
        for name in NODES:
            pretend(cluster, name, GPUS)
        yield cluster
    finally:
        cluster.end()


def pretend(cluster: KubernetesCluster, node: str, gpus: int) -> None:
    """Let the node say that it has so many GPUs."""
    from kubernetes import client, config

    nodes = client.CoreV1Api(config.new_client_from_config(cluster.environment["KUBECONFIG"]))
    nodes.patch_node_status(
        node, {"status": {part: {"nvidia.com/gpu": str(gpus)} for part in ("capacity", "allocatable")}}
    )


def _network() -> None:
    """The bridge of the pods, and the address at which they look for the API server."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "addr", "add", f"{_API}/32", "dev", "lo")
    _run("ip", "link", "add", "pods", "type", "bridge")
    for address in (GATEWAY, *(f"10.97.255.{number}" for number in range(1, len(NODES) + 1))):
        _run("ip", "addr", "add", f"{address}/16", "dev", "pods")
    _run("ip", "link", "set", "pods", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _kernel(folder: Path) -> None:
    folder.mkdir()
    for name, value in _KERNEL.items():
        place = folder / name.replace("/", ".")
        place.write_text(f"{value}\n")
        _run("mount", "--bind", str(place), f"/proc/sys/{name}")


def _credentials(pki: Path) -> dict[str, Any]:
    """Certificates in that folder; returns the kubeconfig of an administrator."""
    import trustme

    authority = trustme.CA(organization_name="gpubroker tests")
    authority.cert_pem.write_to_path(pki / "ca.pem")
    served = authority.issue_cert("127.0.0.1", _API, GATEWAY, "kubernetes.default")
    admin = authority.issue_cert("admin.example", common_name="admin", organization_name="system:masters")
    accounts = authority.issue_cert("accounts.example")
    for name, made in (("api", served), ("admin", admin), ("accounts", accounts)):
        made.private_key_and_cert_chain_pem.write_to_path(pki / f"{name}.pem")
        (pki / f"{name}.pem").chmod(0o600)

    def inline(*blobs: bytes) -> str:
        return base64.b64encode(b"".join(blobs)).decode()

    about = {"server": "https://127.0.0.1:443", "certificate-authority-data": inline(authority.cert_pem.bytes())}
    user = {
        "client-certificate-data": inline(*(one.bytes() for one in admin.cert_chain_pems)),
        "client-key-data": inline(admin.private_key_pem.bytes()),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": about}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": "admin"}}],
        "current-context": CONTEXT,
    }


def _control_plane(cluster: KubernetesCluster, config: Path) -> None:
    pki, binaries = cluster.folder / "pki", cluster.binaries / "bin"
    data = f"--data-dir={cluster.folder / 'etcd'}"
    cluster.start("etcd", binaries / "etcd", data, "--unsafe-no-fsync", f"--listen-client-urls={_ETCD}",
                  f"--advertise-client-urls={_ETCD}")  # fmt: skip
    cluster.start(
        "kube-apiserver", binaries / "kube-apiserver", f"--etcd-servers={_ETCD}", "--secure-port=443",
        f"--advertise-address={GATEWAY}", f"--service-cluster-ip-range={_SERVICES}", "--authorization-mode=RBAC",
        "--allow-privileged", f"--tls-cert-file={pki / 'api.pem'}", f"--tls-private-key-file={pki / 'api.pem'}",
        f"--client-ca-file={pki / 'ca.pem'}", f"--cert-dir={cluster.folder / 'api'}",
        f"--kubelet-client-certificate={pki / 'admin.pem'}", f"--kubelet-client-key={pki / 'admin.pem'}",
        "--kubelet-preferred-address-types=InternalIP", "--service-account-issuer=https://kubernetes.default",
        f"--service-account-key-file={pki / 'accounts.pem'}",
        f"--service-account-signing-key-file={pki / 'accounts.pem'}",
    )  # fmt: skip
    cluster.until("the API server is ready", "get", "--raw", "/readyz")
    cluster.start(
        "kube-controller-manager", binaries / "kube-controller-manager", f"--kubeconfig={config}",
        "--leader-elect=false", "--bind-address=127.0.0.1", "--use-service-account-credentials",
        f"--service-account-private-key-file={pki / 'accounts.pem'}", f"--root-ca-file={pki / 'ca.pem'}",
    )  # fmt: skip
    cluster.start(
        "kube-scheduler", binaries / "kube-scheduler", f"--kubeconfig={config}", "--leader-elect=false",
        "--bind-address=127.0.0.1",
    )  # fmt: skip


_CONTAINERD = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runtime}"
"""


def _node(cluster: KubernetesCluster, config: Path, name: str, number: int, machine: Path) -> None:
    folder, binaries = cluster.folder / name, cluster.binaries / "bin"
    for part in ("cni", "kubelet", "volumeplugins"):
        (folder / part).mkdir(parents=True)
    pods = _PODS.format(number=number).removesuffix(".0")
    addresses = {"subnet": "10.97.0.0/16", "rangeStart": f"{pods}.10", "rangeEnd": f"{pods}.250", "gateway": GATEWAY}
    ipam = {
        "type": "host-local",
        "ranges": [[addresses]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(folder / "ipam"),
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": False, "ipMasq": False, "ipam": ipam}
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "loopback"}]}
    (folder / "cni" / "10.conflist").write_text(json.dumps(network))
    runtime = folder / "runtime"
    runtime.write_text(_RUNTIME.format(runc=binaries / "runc", machine=machine, image=IMAGES["machine"]))
    runtime.chmod(0o755)
    words = {"folder": folder, "pause": IMAGES["pause"], "cni": cluster.binaries / "cni", "runtime": runtime}
    (folder / "containerd.toml").write_text(_CONTAINERD.format(**words))
    socket = folder / "containerd.sock"
    cluster.start(f"{name}-containerd", binaries / "containerd", "--config", folder / "containerd.toml")
    _when_there(socket, cluster)
    for image in sorted((cluster.folder / "images").glob("*.tar")):
        _run(
            str(binaries / "ctr"),
            f"--address={socket}",
            "--namespace=k8s.io",
            "images",
            "import",
            "--snapshotter=native",
            str(image),
        )
    (folder / "resolv.conf").write_text("")
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": f"10.97.255.{number}",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(cluster.folder / "pki" / "ca.pem")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "healthzPort": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(folder / "resolv.conf"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi"},
        "volumePluginDir": str(folder / "volumeplugins"),
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
    }
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(settings))
    cluster.start(
        f"{name}-kubelet", binaries / "kubelet", f"--kubeconfig={config}", f"--config={folder / 'kubelet.yaml'}",
        f"--hostname-override={name}", f"--node-ip=10.97.255.{number}", f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'kubelet' / 'pki'}", "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{socket}", "--node-labels=skypilot.co/accelerator=h100",
    )  # fmt: skip


# Between containerd and runc: a container of the machine image gets the whole machine as its root, with a layer of its
# own to write to, as the machines of `tests.cloud` have it; the image itself is all but empty.
_RUNTIME = """#!/bin/bash
bundle= words=" $* " before=
for word in "$@"; do [ "$before" = --bundle ] && bundle="$word"; before="$word"; done
if [[ "$words" = *" create "* ]] && grep -q '"io.kubernetes.cri.image-name":"{image}"' "$bundle/config.json"; then
  mkdir -p "$bundle/own/upper" "$bundle/own/work"
  own="upperdir=$bundle/own/upper,workdir=$bundle/own/work"
  mount -t overlay overlay -o "lowerdir={machine},$own" "$bundle/rootfs"
fi
exec {runc} "$@"
"""


def _when_there(place: Path, cluster: KubernetesCluster) -> None:
    deadline = time.monotonic() + _WITHIN
    while not place.exists():
        assert time.monotonic() < deadline, f"{place} is not there\n{cluster.last_words()}"
        time.sleep(0.1)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
