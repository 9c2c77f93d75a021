"""Real machines for the instances of an emulated EC2: each a network namespace on a bridge, a root of its own over the
machine image, process and mount namespaces, sshd, and instance metadata.

A node is nothing but its instance: what the instance's state says is done, and nothing else starts or ends one.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.cloud.slots import CloudSlot, remove_namespace

_HERE = Path(__file__).parent
_SYSTEM_PYTHON = "/usr/bin/python3"


def lacking_rights() -> str:
    """Why nodes cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "nodes of a cloud of its own need root"
    made = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "this machine lets nobody make network namespaces"


@dataclass
class CloudNode:
    """``data``: what the machine is told at its first boot, in the words of cloud-init. ``home``: files of the login
    user that its image does not have, by path below its home. ``deaf``: nobody can log in. ``minute``: the
    seconds that a minute takes until a shutdown."""

    slot: CloudSlot
    id: str
    address: str
    zone: str
    folder: Path
    image: Path
    data: Mapping[str, Any]
    home: Mapping[str, str]
    deaf: bool = False
    minute: float = 60.0
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def _namespace(self) -> str:
        return self.slot.prefix + self.id[-8:]

    @property
    def _notice(self) -> Path:
        return self.folder / "notice.json"

    def start(self) -> None:
        for name in ("upper", "work", "root", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for path, text in self.home.items():
            place = self.folder / "home" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        (user,) = self.data["users"]
        (self.folder / "authorized_keys").write_text("\n".join(user["ssh_authorized_keys"]) + "\n")
        (self.folder / "first-boot.sh").write_text("".join(f"{command}\n" for command in self.data.get("runcmd", [])))
        namespace = link = self._namespace
        _ip("netns", "add", namespace)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", link, "master", self.slot.bridge, "up")
        for device, address in (
            ("eth0", f"{self.address}/{self.slot.gateway.network.prefixlen}"),
            ("lo", "169.254.169.254/32"),
        ):
            _ip("-n", namespace, "addr", "add", address, "dev", device)
            _ip("-n", namespace, "link", "set", device, "up")
        about = [self.id, self.zone[:-1], self.zone, str(self._notice)]
        self._run("metadata", [_SYSTEM_PYTHON, "-I", str(_HERE / "metadata_service.py"), *about])
        apart = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "bash", str(_HERE / "boot.sh")]
        name = f"ip-{self.address.replace('.', '-')}"
        words = {"NODE": str(self.folder), "IMAGE": str(self.image), "NAME": name, "NODE_USER": user["name"]}
        times = {"MINUTE": str(self.minute), "DEAF": str(int(self.deaf))}
        self._run("console", apart, ADDRESS=self.address, **words, **times)

    @property
    def is_off(self) -> bool:
        """Whether it shut itself down."""
        return (self.folder / "upper" / "var" / "powered-off").exists()

    def notice(self, within: timedelta) -> None:
        """The provider says that it takes the machine back."""
        said = {"action": "terminate", "time": f"{datetime.now(UTC) + within:%Y-%m-%dT%H:%M:%SZ}"}
        draft = self._notice.with_suffix(".new")
        draft.write_text(json.dumps(said))
        draft.replace(self._notice)

    def end(self) -> None:
        """As if the power was cut."""
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        remove_namespace(self._namespace)
        shutil.rmtree(self.folder, ignore_errors=True)

    def last_words(self) -> str:
        return "\n".join(f"{path}: {path.read_text(errors='replace')[-1500:]}" for path in self.folder.glob("*.out"))

    def _run(self, name: str, command: list[str], **more: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            whole = ["ip", "netns", "exec", self._namespace, *command]
            self._started.append(
                subprocess.Popen(whole, env={**os.environ, **more}, stdout=said, stderr=said, start_new_session=True)
            )


@dataclass
class CloudNodes:
    """The nodes of one region, by instance id, kept as its instances are. ``ec2``: a client of boto3; ``states``: of
    all instances, by their ids; ``shut_down``: called with the id of one that shut itself down. ``deaf``, ``minute``:
    of those that start from now on."""

    slot: CloudSlot
    ec2: Any
    states: Callable[[], Mapping[str, str]]
    shut_down: Callable[[str], None]
    folder: Path
    image: Path
    home: Mapping[str, str]
    deaf: bool = False
    minute: float = 60.0
    running: dict[str, CloudNode] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    _followed: Mapping[str, str] = field(default_factory=dict)

    def follow(self) -> None:
        """Start and end what the instances' states say; tell of those that shut themselves down."""
        for id in [id for id, node in self.running.items() if node.is_off]:
            self.shut_down(id)
        states = self.states()
        if states == self._followed:
            return
        found = [one for part in self.ec2.describe_instances()["Reservations"] for one in part["Instances"]]
        wanted = {one["InstanceId"]: one for one in found if one["State"]["Name"] in ("pending", "running")}
        for id in self.running.keys() - wanted.keys():
            self.running.pop(id).end()
        for id in wanted.keys() - self.running.keys():
            if node := self._node(wanted[id]):
                self.running[id] = node
                node.start()
        self._followed = states

    def _node(self, about: Mapping[str, Any]) -> CloudNode | None:
        """None for an instance that nobody could log in to."""
        id = about["InstanceId"]
        encoded = self.ec2.describe_instance_attribute(InstanceId=id, Attribute="userData")["UserData"].get("Value")
        if not encoded:
            return None
        data = yaml.safe_load(base64.b64decode(encoded))
        zone, address = about["Placement"]["AvailabilityZone"], about["PrivateIpAddress"]
        place = (self.slot, id, address, zone, self.folder / id, self.image)
        return CloudNode(*place, data, self.home, self.deaf, self.minute)


@contextmanager
def network(slot: CloudSlot) -> Iterator[None]:
    """The bridge that all nodes are on, and this machine as their gateway."""
    _ip("link", "add", slot.bridge, "type", "bridge")
    try:
        _ip("addr", "add", str(slot.gateway), "dev", slot.bridge)
        _ip("link", "set", slot.bridge, "up")
        yield
    finally:
        _ip("link", "del", slot.bridge)


@contextmanager
def following(nodes: CloudNodes, every: float = 0.3) -> Iterator[None]:
    """Keep the nodes as their instances are, in a thread."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(every):
            try:
                nodes.follow()
            except Exception as error:  # noqa: BLE001 (whatever it was: the test that waits for the node shows it)
                nodes.trouble.append(repr(error))

    thread = threading.Thread(target=follow, name="nodes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
        for node in list(nodes.running.values()):
            node.end()
        nodes.running.clear()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
