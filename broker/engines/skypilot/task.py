"""One launch as a SkyPilot task with its placement pinned. Pure; needs no SDK.

SkyPilot chooses nothing: cloud, region, zone, instance type and spot come from the offer. The job's command, setup and
variables are not in the task but in the run folder, where the agent reads them verbatim.

The commands for a node prepare the agent (setup) and start it (run): bash scripts for the image's default user; nothing
needs root. A node needs Python ≥ 3.9 with pip, or uv, and a
reachable package index; without such a Python it uses SkyPilot's.

Google's flex start: machines that are started once there is capacity, for a requested time of up to seven days, at
separate prices. The machine type of such an offer ends in `SUFFIX` (`providers/gcp/provider.py`). SkyPilot requests its
machines through a managed instance group with a resize request of `requested_run_duration`: Google starts all of them
or none, and deletes them at the end of that time. Limits: Compute Engine documentation, "About Flex-start VMs", read
2026-11-26: the run duration is ten minutes to seven days.
"""

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from broker.core.errors import TryAnotherOffer
from broker.core.job.jobs import MachineRequest
from broker.core.job.snapshots import is_local
from broker.core.market.capacity import STORE_TAG, TAG
from broker.core.market.offers import CapacityType, Offer
from broker.core.ports import Launch
from broker.engines.runfolder.agent_bundle import OBSTORE, requirements
from broker.engines.runfolder.attempt_keys import TICKET_LABEL, ticket_of
from broker.placement.feasibility import request_served

# SkyPilot's clouds by provider. Vast is missing: SkyPilot rents the cheapest listing at that moment, which may differ
# from the offer in machine and price.
CLOUDS: Mapping[str, str] = {
    name: name for name in ("aws", "azure", "gcp", "oci", "lambda", "runpod", "nebius", "kubernetes", "ssh", "slurm")
}
# Clouds without instance types: machines are requested by size.
BY_SIZE = frozenset({"kubernetes", "ssh", "slurm"})
_WITHOUT_ZONES = frozenset({"azure", "lambda", "nebius", "kubernetes", "ssh"})
# Providers list prices that are equal in all regions under these region names; SkyPilot then chooses the region.
_NO_REGION = "global"
_NO_REGIONS_OF = frozenset({("runpod", "secure")})
# ``use1-az6``, ``usw2-lax1-az1``: a zone ID means the same place for every account; a zone name, such as
# ``us-east-1a``, depends on the account.
_ZONE_ID = re.compile(r"[a-z0-9-]+-az[0-9]+")

ZoneNames = Callable[[str], Mapping[str, str]]
"""The zone names of SkyPilot's AWS account by zone ID, of one region."""


def infra(offer: Offer, cloud: str, aws_zones: ZoneNames) -> str:
    """``cloud[/region[/zone]]``.

    For a zone ``region:zone``, such as a Slurm partition, only the latter part. ``aws_zones`` is called only for AWS
    offers with a zone ID. Raises `TryAnotherOffer` if the account lacks that zone, and what ``aws_zones`` raises.
    """
    if offer.region == _NO_REGION or (cloud, offer.region) in _NO_REGIONS_OF:
        return cloud
    zone = None if cloud in _WITHOUT_ZONES else offer.zone
    if cloud == "aws" and zone and _ZONE_ID.fullmatch(zone):
        names = aws_zones(offer.region)
        if zone not in names:
            available = ", ".join(sorted(names)) or "none"
            raise TryAnotherOffer(
                f"the AWS account has no zone {zone} in {offer.region}; it has {available}",
                where="skypilot",
                hint="zones of AWS differ between accounts; `aws ec2 describe-availability-zones` lists them",
            )
        zone = names[zone]
    return "/".join([cloud, offer.region, *([zone.removeprefix(f"{offer.region}:")] if zone else [])])


def accelerators(offer: Offer, cloud: str) -> dict[str, int]:
    """The accelerators to request in addition to the instance type: none if the type includes them, since SkyPilot
    rejects names other than its own (``H100-MEGA`` for a3-megagpu, ``H100`` for Azure's NCads H100 v5).
    """
    is_attached = cloud == "gcp" and offer.instance_type.startswith("n1-")
    return {offer.accelerator: offer.count} if offer.accelerator and (is_attached or cloud in BY_SIZE) else {}


SUFFIX = "+flex-start"
_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=7)
# Added to the job's time: Google's time begins with the machine, the job's begins later, and a job that is stopped at
# its end still saves a checkpoint.
_MARGIN = timedelta(minutes=20)
# How long a launch waits for machines; then the job is placed again.
_PROVISION_TIMEOUT = timedelta(minutes=15)


def machine_type(offer: Offer) -> str:
    return offer.instance_type.removesuffix(SUFFIX)


def flex_settings(launch: Launch) -> dict[str, Any]:
    """SkyPilot's settings for a launch with flex start; empty for other launches.

    The requested time is the job's maximum running time plus its start and end, as shorter requests are served sooner.
    """
    if not launch.placement.offer.instance_type.endswith(SUFFIX):
        return {}
    longest = min(max((launch.job.max_duration or _LONGEST) + _MARGIN, _SHORTEST), _LONGEST)
    group = {"run_duration": int(longest.total_seconds()), "provision_timeout": int(_PROVISION_TIMEOUT.total_seconds())}
    return {"gcp": {"managed_instance_group": group}}


# One folder per attempt, with a folder per rank in it: nodes and attempts may share a home folder.
_FOLDER = ".gpubroker"


def archive_path(key: str) -> str:
    """The path of the agent's file on the node."""
    return f"~/{_FOLDER}/{key}/agent.pyz"


UNTOUCHED_MARK = "/run/gpubroker-untouched"
"""A file that marks a machine that will power off unless it is set up (`sdk.identities`)."""
SET_UP_MARK = "/tmp/gpubroker-set-up"  # noqa: S108 (on a machine of the job's own; whoever could write it runs there)
"""A file that marks a machine whose setup has begun, perhaps before its first boot is complete."""

_SETUP = """\
set -eu
umask 077
: 2>/dev/null > {set_up} || :
if [ -e {untouched} ]; then sudo -n sh -c 'shutdown -c && rm -f {untouched}'; fi
own="$HOME/{folder}/{key}/rank-${{SKYPILOT_NODE_RANK:-${{SKYPILOT_SETUP_NODE_RANK:-0}}}}"
mkdir -p "$own"
found=
for python in python3 python3.13 python3.12 python3.11 python3.10 python3.9 \\
    "${{SKY_RUNTIME_DIR:-$HOME}}/skypilot-runtime/bin/python"; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    found="$(command -v "$python")"
    break
  fi
done
if [ -z "$found" ]; then
  echo "gpubroker: this machine has no Python 3.9 or newer" >&2
  exit 1
fi
version="$("$found" -c 'import sys; print("%d%02d" % sys.version_info[:2])')"
{pins}
printf '%s\\n' "$requirements" > "$own/requirements.txt"
set -- --require-hashes --only-binary :all: --requirement "$own/requirements.txt"
if "$found" -m pip --version >/dev/null 2>&1; then
  "$found" -m pip install --quiet --disable-pip-version-check --target "$own/lib" --upgrade "$@"
else
  PATH="$HOME/.local/bin:$PATH" uv pip install --quiet --python "$found" --target "$own/lib" "$@"
fi
ln -sf ../agent.pyz "$own/agent.pyz"
printf %s "$found" > "$own/python"
"""

_RUN = """\
rank="${{SKYPILOT_NODE_RANK:-0}}"
own="$HOME/{folder}/{key}/rank-$rank"
exec "$(cat "$own/python")" -I "$own/agent.pyz" --folder {run_folder} --rank "$rank" \\
  --gang "${{SKYPILOT_TASK_ID:-{key}}}" --scratch "$own/scratch"
"""

_ENTER = """own="$HOME/{folder}/{key}/rank-{rank}"; exec "$(cat "$own/python")" -I "$own/agent.pyz" enter \\
  --scratch "$own/scratch" {words}"""


def setup_script(key: str) -> str:
    """Installs obstore for the node's own Python into the attempt's folder. Idempotent."""
    words = ["if", *["elif"] * (len(OBSTORE) - 1)]
    pins = [
        f'{word} [ "$version" -ge {major}{minor:02d} ]; then requirements={shlex.quote(requirements(pin))}'
        for word, ((major, minor), pin) in zip(words, OBSTORE, strict=True)
    ]
    marks = {"untouched": UNTOUCHED_MARK, "set_up": SET_UP_MARK}
    return _SETUP.format(folder=_FOLDER, key=key, **marks, pins="\n".join([*pins, "fi"]))


def power_off_commands(minutes: int) -> list[str]:
    """Commands for the first boot, as root, by which the machine powers off unless it is set up within ``minutes``.

    The setup may begin before them; each side writes its own mark first and then looks for the other's.
    """
    undo = f"if [ -e {SET_UP_MARK} ]; then shutdown -c; rm -f {UNTOUCHED_MARK}; fi"
    return [f"touch {UNTOUCHED_MARK}", f"shutdown -P +{minutes}", undo]


def run_script(key: str, run_folder: str) -> str:
    """Runs the agent."""
    return _RUN.format(folder=_FOLDER, key=key, run_folder=shlex.quote(run_folder))


def enter_script(key: str, rank: int, words: Sequence[str]) -> str:
    """A shell command that enters the command of the agent of that rank, on its node."""
    return _ENTER.format(folder=_FOLDER, key=key, rank=rank, words=shlex.join(words))


def cluster_name(key: str) -> str:
    """The key, with a letter before it if it starts with none: SkyPilot requires a letter."""
    return key if key[:1].isalpha() else f"gpubroker-{key}"


def key_of(cluster: str) -> str:
    """The key of a cluster: the inverse of `cluster_name`."""
    rest = cluster.removeprefix("gpubroker-")
    return rest if not rest[:1].isalpha() else cluster


def has_queue(cloud: str | None) -> bool:
    """Whether launches on that cloud wait in a queue, so that a pending launch has no machine yet."""
    return cloud in BY_SIZE


def task_config(
    launch: Launch, archive: Path, secrets: Mapping[str, str], clouds: Mapping[str, str], aws_zones: ZoneNames
) -> dict[str, Any]:
    """The task in the form of SkyPilot's YAML.

    ``archive``: the path of the agent's file on this machine. ``secrets``: variables passed to the node and never
    stored. ``aws_zones``: see `places.infra`. Raises `TryAnotherOffer` for a cloud unknown to SkyPilot, and what
    `places.infra` raises.
    """
    job, key = launch.job, launch.key
    # The agent fetches the local files from the run store, not from this machine's disk.
    mounts = {target: source for target, source in job.file_mounts.items() if not is_local(source)}
    config: dict[str, Any] = {
        "name": cluster_name(key),
        "num_nodes": launch.placement.nodes,
        "resources": resources(launch, clouds, aws_zones),
        "file_mounts": {**mounts, archive_path(key): str(archive)},
        "setup": setup_script(key),
        "run": run_script(key, launch.run_folder),
    }
    if secrets:
        config["secrets"] = dict(secrets)
    if job.skypilot_config:
        config["config"] = job.skypilot_config
    return config


def resources(launch: Launch, clouds: Mapping[str, str], aws_zones: ZoneNames) -> dict[str, Any]:
    """The pinned offer, and the job's further requirements."""
    offer = launch.placement.offer
    cloud = clouds.get(offer.provider)
    if cloud is None:
        raise TryAnotherOffer(
            f"SkyPilot knows no cloud {offer.provider!r}",
            where="skypilot",
            hint="if it has another name there, set it in GPUBROKER_ENGINES__SKYPILOT__CLOUDS",
        )
    request = request_served(offer, launch.job)
    labels = dict(request.labels) if request else {}
    fields: dict[str, Any] = {
        "infra": infra(offer, cloud, aws_zones),
        "use_spot": offer.capacity_type is CapacityType.SPOT,
        "labels": {**labels, TAG: launch.key, **({STORE_TAG: launch.store} if launch.store else {}), **_ticket(launch)},
    }
    if requested := accelerators(offer, cloud):
        fields["accelerators"] = requested
    if cloud in BY_SIZE:
        fields |= _size(offer, request)
    else:
        fields["instance_type"] = machine_type(offer)
    return fields | (_extra_resources(request) if request else {})


def _ticket(launch: Launch) -> dict[str, str]:
    """The launch's ticket, which SkyPilot's admin policy can use to ask the broker about a launch."""
    ticket = ticket_of(launch.key, launch.secrets)
    return {} if ticket is None else {TICKET_LABEL: ticket}


def _extra_resources(request: MachineRequest) -> dict[str, Any]:
    """The job's requirements beyond the machine."""
    fields = {
        "disk_size": math.ceil(request.disk_gib) if request.disk_gib else None,
        "disk_tier": request.disk_tier and request.disk_tier.value,
        "network_tier": request.network_tier and request.network_tier.value,
        "image_id": request.image,
        "ports": list(request.ports),
    }
    return {name: value for name, value in fields.items() if value}


def _size(offer: Offer, request: MachineRequest | None) -> dict[str, float]:
    """CPUs and GiB of memory, always explicit, so that SkyPilot's defaults do not apply."""
    cpus = (request.cpus if request else None) or offer.cpus or 1
    memory = (request.memory_gib if request else None) or offer.memory_gib
    return {"cpus": cpus, **({"memory": memory} if memory else {})}


def _absolute(source: Any) -> Any:
    """A local path as an absolute one, independent of the broker's folder; URLs of buckets unchanged."""
    if not is_local(source):
        return source
    return str(Path(source).expanduser().absolute())
