"""A cloud in a folder: an emulated AWS whose instances are real machines, a real SkyPilot API server that launches
there, and the settings with which gpubroker uses both."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.cloud.ec2 import ACCOUNT, EmulatedAws, OrderedRefusal, running_aws, states
from tests.cloud.image import mounted_image
from tests.cloud.nodes import CloudNode, CloudNodes, following, lacking_rights, network
from tests.cloud.slots import CloudSlot
from tests.program import eventually
from tests.skypilot_server import SkyServer, address, api_ports

REGION = "us-east-1"
# Two zones as AWS numbers them for everybody, and as this account calls them (moto's own names).
ZONES = {"use1-az6": "us-east-1a", "use1-az1": "us-east-1b"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "planted-secret-key"}
OWN_KEY = "AKIAIOSFODNN7THECLOUD"  # of what stands for the provider and belongs to no account
MACHINE = "m6i.large"
_IMAGE = "ami-1e749f67"  # one that moto knows
_ROLE = "skypilot-v1"  # of SkyPilot's nodes, made by its first launch in an account; moto refuses its policies
_INTERFACES = ("ec2", "s3", "iam")
_PROGRAMS = ("ip", "unshare", "sshd", "ssh-keygen", "rsync", "sudo", "curl")
_SKYPILOT_CONFIG = """
allowed_clouds: [aws]
aws:
  vpc_name: lab
  use_internal_ips: true
  use_ssm: false
  remote_identity: SERVICE_ACCOUNT
"""
_MACHINES = [  # type, price per hour on demand; spot by zone
    (MACHINE, 2, 8, "7.2", {"use1-az6": "3.6", "use1-az1": "4.32"}),
]


def missing() -> str:
    """What is not there that a cloud of its own needs; empty when all is."""
    if find_spec("sky") is None or find_spec("awscli") is None:
        return "extra `skypilot` is not installed"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    if lacking := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        return f"not installed: {', '.join(lacking)} (Debian packages iproute2, openssh-server, rsync, sudo and curl)"
    if not Path("/usr/bin/python3").exists():
        return "nodes need the system's own Python, /usr/bin/python3"
    return lacking_rights()


@dataclass
class CloudLab:
    """``environment``: what gpubroker and SkyPilot need to work with this cloud and with no other."""

    folder: Path
    aws: EmulatedAws
    nodes: CloudNodes
    server: SkyServer
    environment: Mapping[str, Any]
    ec2: Any
    s3: Any

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """All instances, or those in one of these states, oldest first."""
        found = [one for part in self.ec2.describe_instances()["Reservations"] for one in part["Instances"]]
        return sorted(
            (one for one in found if not states or one["State"]["Name"] in states), key=lambda one: one["LaunchTime"]
        )

    @staticmethod
    def states() -> dict[str, str]:
        """The state of each instance, by its id."""
        return states(REGION)

    def alive(self) -> list[dict[str, Any]]:
        return self.instances("pending", "running", "stopping", "stopped")

    def node_of(self, instance: Mapping[str, Any]) -> CloudNode:
        return eventually(lambda: self.nodes.running.get(instance["InstanceId"]), "the machine is there")

    @staticmethod
    def life(instance: Mapping[str, Any]) -> tuple[float, float]:
        """When a machine that is gone began and ended, by the cloud's clock, in whole seconds since 1970."""
        (ended,) = re.findall(r"\((.*) UTC\)", instance["StateTransitionReason"])
        until = datetime.strptime(ended, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        return instance["LaunchTime"].timestamp(), until.timestamp()

    def take_back(self, instance: Mapping[str, Any]) -> None:
        """The provider ends the machine at once, and says so."""
        _end(self._told(instance), "Server.SpotInstanceTermination", "taken back")

    def announce(self, instance: Mapping[str, Any], within: timedelta) -> None:
        """The provider says, to the machine and to its account, that it takes it back after that time."""
        request = f"sir-{instance['InstanceId'][-8:]}"
        self._told(instance).spot_instance_request_id = request
        self.aws.spot_status[request] = "marked-for-termination"
        self.node_of(instance).notice(within)

    @staticmethod
    def _told(instance: Mapping[str, Any]) -> Any:
        return _kept(instance["InstanceId"])

    def subnet(self, zone: str) -> str:
        """The id of the subnet there, which is how SkyPilot names a zone to EC2."""
        (found,) = self.ec2.describe_subnets(Filters=[{"Name": "tag:Name", "Values": [f"lab-{zone}"]}])["Subnets"]
        return str(found["SubnetId"])

    def no_capacity(self, zone: str) -> OrderedRefusal:
        """What EC2 answers where it has no such machine at the moment."""
        text = f"We currently do not have sufficient capacity in the Availability Zone you requested ({zone})."
        subnet = self.subnet(zone)
        return OrderedRefusal(
            "RunInstances", "InsufficientInstanceCapacity", text, 500, to=lambda asked: subnet in asked.values()
        )

    def start_untold(self, tags: Mapping[str, str], before: timedelta) -> str:
        """The id of an instance with these tags, which began that long ago. No machine is made for it."""
        tagged = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        (made,) = self.ec2.run_instances(
            ImageId=_IMAGE, InstanceType=MACHINE, MinCount=1, MaxCount=1, TagSpecifications=[tagged]
        )["Instances"]
        self._told(made).launch_time = datetime.now(UTC) - before
        return str(made["InstanceId"])

    def last_words(self) -> str:
        nodes = [node.last_words() for node in self.nodes.running.values()]
        return "\n".join([self.server.last_words(), *nodes, *self.nodes.trouble[-5:]])


def _kept(id: str) -> Any:
    """The instance as moto keeps it."""
    from moto.ec2.models import ec2_backends

    return ec2_backends[ACCOUNT][REGION].get_instance(id)


def _end(kept: Any, code: str, why: str) -> None:
    from moto.ec2.models.instances import StateReason

    kept.terminate()
    kept.state_reason = StateReason(f"{code}: {why}", code)


def _shut_down(id: str) -> None:
    """As EC2 does with a machine that shuts itself down: a spot machine is gone, any other is stopped (EC2's user
    guide, "Instance-initiated shutdown behavior": a one-time spot request cannot be stopped)."""
    kept = _kept(id)
    if kept.lifecycle == "spot":
        _end(kept, "Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
    else:
        kept.stop()


@contextmanager
def running_lab(slot: CloudSlot) -> Iterator[CloudLab]:
    """Build the cloud in the slot's folder and start it; end it with all that runs in it."""
    import boto3

    folder = slot.folder

    with ExitStack() as stack:
        stack.enter_context(mounted_image(folder / "image", slot.number))
        stack.enter_context(network(slot))
        aws = stack.enter_context(running_aws(str(slot.gateway.ip)))
        keys = {"aws_access_key_id": OWN_KEY, "aws_secret_access_key": "none"}
        ec2, s3, iam = (boto3.client(name, endpoint_url=aws.url, region_name=REGION, **keys) for name in _INTERFACES)
        _prepare(slot, ec2, s3, iam)
        environment = {
            "HOME": str(folder / "home"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]),
            "AWS_ENDPOINT_URL": aws.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(_quick_start(folder / "quick")),
        }
        _home(folder / "home")
        port, metrics_port = api_ports()
        server = SkyServer(folder, {**environment, **address(port)})
        on_nodes = {".aws/config": f"[default]\nregion = {REGION}\nendpoint_url = {aws.url}\n"}
        nodes = CloudNodes(slot, ec2, partial(states, REGION), _shut_down, folder / "nodes", folder / "image", on_nodes)
        stack.enter_context(following(nodes))
        stack.callback(server.end)
        server.start_api(port, metrics_port)
        yield CloudLab(folder, aws, nodes, server, {**server.environment, **_settings(aws)}, ec2, s3)


def _quick_start(place: Path) -> Path:
    """A folder for Python's path: garbage is collected rarely, which takes a fifth from the imports of each process."""
    place.mkdir()
    (place / "sitecustomize.py").write_text("import gc\n\ngc.set_threshold(1_000_000)\n")
    return place


def _settings(aws: EmulatedAws) -> dict[str, str]:
    """gpubroker's: run folders in a bucket, which nodes reach with the keys that are handed to them."""
    handed = {**KEYS, "AWS_REGION": REGION, "AWS_ENDPOINT_URL": aws.url, "AWS_ALLOW_HTTP": "true"}
    return {
        **handed,
        "GPUBROKER_RUNS": "s3://runs/jobs",
        "GPUBROKER_ENGINES__SKYPILOT__ENVIRONMENT": " ".join(handed),
        "GPUBROKER_ENGINES__SKYPILOT__CLOUDS__LAB": "aws",
        "GPUBROKER_ENGINES__SKYPILOT__LOOK": "2",
        "GPUBROKER_ENGINES__SKYPILOT__REFRESH": "40",  # a look takes six seconds of a processor on the node
    }


def _prepare(slot: CloudSlot, ec2: Any, s3: Any, iam: Any) -> None:
    """A network with a private subnet in each zone, a bucket, and the role of nodes: an account that SkyPilot knows."""
    vpc = ec2.create_vpc(CidrBlock=str(slot.gateway.network))["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Name", "Value": "lab"}])
    slices = list(slot.gateway.network.subnets(new_prefix=24))
    for number, zone in enumerate(ZONES.values(), start=1):
        name = {"ResourceType": "subnet", "Tags": [{"Key": "Name", "Value": f"lab-{zone}"}]}
        ec2.create_subnet(VpcId=vpc, CidrBlock=str(slices[number]), AvailabilityZone=zone, TagSpecifications=[name])
    s3.create_bucket(Bucket="runs")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trusted = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName=_ROLE, AssumeRolePolicyDocument=trusted)
    iam.create_instance_profile(InstanceProfileName=_ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=_ROLE, RoleName=_ROLE)


def _home(home: Path) -> None:
    """SkyPilot's own settings, the login, and a catalogue of this cloud's machines; no other is fetched."""
    for name in (".sky", ".aws"):
        (home / name).mkdir(parents=True)
    (home / ".sky" / "config.yaml").write_text(_SKYPILOT_CONFIG)
    keys = "".join(f"{name.lower()} = {value}\n" for name, value in KEYS.items())
    (home / ".aws" / "credentials").write_text(f"[default]\n{keys}")
    (home / ".aws" / "credentials").chmod(0o600)
    columns = "InstanceType AcceleratorName AcceleratorCount vCPUs MemoryGiB GpuInfo Price SpotPrice Region"
    rows = [
        [machine, "", "", cpus, memory, "", price, spot[zone], REGION, zone, "x86_64", "", "", "", "", ""]
        for machine, cpus, memory, price, spot in _MACHINES
        for zone in ZONES
    ]
    more = "AvailabilityZone Arch LocalDiskType NVMeSupported LocalDiskSize LocalDiskCount MaximumEfaInterfaces"
    _catalogue(home, "aws/vms.csv", f"{columns} {more}", rows)
    tags = ("custom-cpu-ubuntu", "custom-gpu-ubuntu", "custom-gpu-ubuntu-cuda13")
    images = [[f"skypilot:{tag}", REGION, "ubuntu", "22.04", _IMAGE, "20260101"] for tag in tags]
    _catalogue(home, "aws/images.csv", "Tag Region OS OSVersion ImageId CreationDate", images)
    quotas = [[machine, "L-1216C47A", "L-34B43A08"] for machine, *_ in _MACHINES]
    _catalogue(home, "aws/instance_quota_mapping.csv", "InstanceType OnDemandInstanceCode SpotInstanceCode", quotas)
    _catalogue(home, "common/accelerators.csv", "AcceleratorName Clouds", [["A10G", "['AWS']"]])
    _catalogue(home, "common/metadata.csv", "GPU MemoryGB", [["A10G", 24]])


def _catalogue(home: Path, name: str, header: str, rows: list[list[Any]]) -> None:
    place = home / ".sky" / "catalogs" / "v8" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header.split())
        writer.writerows(rows)
