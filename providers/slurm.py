"""The partitions of a Slurm cluster as owned capacity: the free machines, by scontrol and squeue.

Queried before each decision, like this machine. One offer per partition, kind of GPU and count on a node (powers of
two, and the whole node), one per MIG slice and part of a card in shards, and one for its nodes as CPU machines.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from broker.core.errors import GiveUp, NoLogin, RetryLater, UnknownName
from broker.core.market.accelerators import MAX_PARTS, canonical, is_part, lookup, mig_profile, part_of, soft_part
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer, OfferQuery, SkippedRow, part_price
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.registry import ProviderSettings, split_commas

_GRES = re.compile(r"gpu:(?P<type>[A-Za-z0-9._-]+):(?P<count>[0-9]+)")
_ALL_SHARDS = re.compile(r"(?:^|,)(?P<name>shard(?::[A-Za-z0-9._-]+)?):(?P<count>[0-9]+)(?:\(|,|$)")
_JOB_PART = re.compile(r"Nodes=(?P<node>\S+) CPU_IDs=\S* Mem=\S* GRES=(?P<gres>\S*)")
_JOB_SHARDS = re.compile(r"shard(?::[A-Za-z0-9._-]+)?:(?P<count>[0-9]+)\(IDX:(?P<card>[0-9]+)\)")
_SHARDS = re.compile(r"shard(?::(?P<type>[A-Za-z0-9._-]+))?:[0-9]+\(IDX:(?P<cards>[0-9,-]+)\)")
_BARE_GRES = re.compile(r"gpu:(?P<count>[0-9]+)(?:\(|,|$)")
_TAKES_JOBS = frozenset({"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED"})
_TIMEOUT = 30.0
_NO_CLUSTER_HINT = "to use a Slurm cluster, run gpubroker where Slurm's commands work (a login node), or set SLURM_CONF"
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")

Run = Callable[[Sequence[str]], str]


class SlurmProviderSettings(ProviderSettings):
    """The cost of an hour on the cluster, in USD, and the partitions used.

    ``price_per_gpu_hour``, ``price_per_cpu_node_hour``: extra cost of use over idling (electricity, wear).
    ``amortised_per_gpu_hour``: the purchase over its life, for showback only. ``partitions``: the ones to use; empty
    for all that accept jobs. ``mig_card``: the card that is cut, where types of GRES name MIG profiles alone
    (``1g.10gb``).
    """

    price_per_gpu_hour: Money = Money.ZERO
    price_per_cpu_node_hour: Money = Money.ZERO
    amortised_per_gpu_hour: Money | None = None
    partitions: Annotated[tuple[str, ...], BeforeValidator(split_commas)] = ()
    mig_card: str = ""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node that accepts jobs: ``gpus`` and ``used`` by type as Slurm names it. ``shard``: its shards' GRES, and
    ``shards``: how many there are; ``room``: how many of each card no job has."""

    name: str
    partitions: tuple[str, ...]
    cpus: int
    free_cpus: int
    memory_mib: int
    gpus: Counter[str]
    used: Counter[str]
    shard: str = ""
    shards: int = 0
    room: tuple[int, ...] = ()


def is_available() -> bool:
    """Whether Slurm's commands are installed and know a cluster. Sends no request."""
    configured = "SLURM_CONF" in os.environ or any(Path(path).exists() for path in _CONFIGURATIONS)
    return configured and shutil.which("scontrol") is not None


def _command(arguments: Sequence[str]) -> str:
    try:
        result = subprocess.run(  # noqa: S603 (a fixed command; no shell reads its arguments)
            list(arguments),
            env={**os.environ, "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RetryLater(f"{arguments[0]} did not answer within {_TIMEOUT:.0f} s", where="slurm") from error
    except OSError as error:
        raise NoLogin(
            f"{arguments[0]} cannot be run: {error.strerror or error}", where="slurm", hint=_NO_CLUSTER_HINT
        ) from error
    if result.returncode:
        words = " ".join(result.stderr.split())[:300]
        if "establish a configuration source" in words:
            raise NoLogin(f"{arguments[0]} finds no cluster: {words}", where="slurm", hint=_NO_CLUSTER_HINT)
        raise RetryLater(f"{arguments[0]}: {words}", where="slurm", hint="is slurmctld up, and does munge run here?")
    return result.stdout


class SlurmProvider:
    """The cluster that the Slurm commands on this machine use (``SLURM_CONF``)."""

    name = "slurm"
    refresh_before_deciding = True
    Settings: ClassVar = SlurmProviderSettings

    def __init__(self, *, clock: Clock, settings: SlurmProviderSettings | None = None, run: Run = _command) -> None:
        """``run`` runs one of Slurm's commands and returns its output."""
        self._clock = clock
        self._settings = settings or SlurmProviderSettings()
        self._run = run

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """The offers of all partitions, whatever the query. Read-only. Raises `RetryLater` while the controller is
        unreachable, `NoLogin` without a cluster."""
        cluster = _cluster(self._run(["scontrol", "show", "config"]))
        printed = self._run(["scontrol", "--oneliner", "--details", "show", "nodes"])
        jobs = self._run(["scontrol", "--oneliner", "--details", "show", "jobs"]) if "shard:" in printed else ""
        nodes, skipped = parse_nodes(printed, jobs)
        yield from skipped
        user = f"--user={os.getuid()}"
        own_nodes = _own_nodes(self._run(["squeue", "--noheader", "--states=running", user, "--format", "%k|%D"]))
        partitions = sorted({name for node in nodes for name in node.partitions})
        selected = self._settings.partitions
        for partition in partitions:
            if selected and partition not in selected:
                continue
            members = [node for node in nodes if partition in node.partitions]
            for offer in self._partition_offers(cluster, partition, members):
                if isinstance(offer, Offer):
                    yield _with_slots(offer, own_nodes[offer.pool])
                else:
                    yield offer

    def _partition_offers(
        self, cluster: str, partition: str, nodes: Sequence[SlurmNode]
    ) -> Iterator[Offer | SkippedRow]:
        for kind in sorted({kind for node in nodes for kind in node.gpus}):
            gpu_nodes = [node for node in nodes if node.gpus[kind]]
            try:
                accelerator = self._accelerator(kind)
            except UnknownName:
                yield SkippedRow("unknown_accelerator", f"{partition}: GRES type {kind!r} is not in the GPU table")
                continue
            yield from self._shard_offers(f"{cluster}:{partition}", accelerator, gpu_nodes)
            max_gpus = 1 if is_part(accelerator) else max(node.gpus[kind] for node in gpu_nodes)
            for count in sorted({2**power for power in range(max_gpus.bit_length())} | {max_gpus}):
                candidates = [node for node in gpu_nodes if node.gpus[kind] >= count]
                free = sum(
                    min(max(node.gpus[kind] - node.used[kind], 0) // count, node.free_cpus) for node in candidates
                )
                share = min(candidates, key=lambda node: node.cpus)
                yield self._offer(
                    f"{cluster}:{partition}",
                    f"{kind}:{count}",
                    accelerator,
                    count,
                    free,
                    share.cpus * count / share.gpus[kind],
                    share.memory_mib / 1024 * count / share.gpus[kind],
                )
        free = sum(1 for node in nodes if node.free_cpus == node.cpus)
        smallest = min(nodes, key=lambda node: node.cpus)
        memory = smallest.memory_mib / 1024
        yield self._offer(f"{cluster}:{partition}", "cpu", None, 0, free, float(smallest.cpus), memory)

    def _accelerator(self, kind: str) -> str:
        """Raises `UnknownName`. A profile is one of ``mig_card`` if its type may mean that card: A100 is two cards."""
        if self._settings.mig_card and (cut := mig_profile(kind)):
            with suppress(UnknownName):
                card = lookup(self._settings.mig_card)
                if not cut[0] or canonical(cut[0], card.memory_gib) == card.name:
                    return canonical(f"{card.name}-{cut[1]}")
        return canonical(kind)

    def _shard_offers(self, zone: str, accelerator: str, nodes: Sequence[SlurmNode]) -> Iterator[Offer]:
        """Each number of shards that is an equal part of a card. Slurm gives a job shards of one card alone."""
        if is_part(accelerator):
            return
        for shard, each in sorted({(node.shard, node.shards // len(node.room)) for node in nodes if node.room}):
            same = [node for node in nodes if (node.shard, node.shards) == (shard, each * len(node.room))]
            smallest = min(same, key=lambda node: node.cpus)
            for number in (number for number in range(1, each) if each % number == 0 and each // number <= MAX_PARTS):
                free = sum(min(sum(room // number for room in node.room), node.free_cpus) for node in same)
                part, name = number / smallest.shards, soft_part(part_of(accelerator, each // number))
                cpus, memory = smallest.cpus * part, smallest.memory_mib / 1024 * part
                yield self._offer(zone, f"{shard}:{number}", name, 1, free, cpus, memory)

    def _offer(
        self, zone: str, machine: str, accelerator: str | None, count: int, free: int, cpus: float, memory_gib: float
    ) -> Offer:
        """``zone``: ``cluster:partition``."""
        settings = self._settings
        amortised = settings.amortised_per_gpu_hour if accelerator else None
        price = settings.price_per_cpu_node_hour
        if accelerator:
            price = part_price(settings.price_per_gpu_hour, accelerator) * count
        return Offer(
            provider=self.name,
            region=zone.partition(":")[0],
            zone=zone,
            instance_type=machine,
            accelerator=accelerator,
            count=count,
            capacity_type=CapacityType.OWNED,
            price=price,
            as_of=self._clock.now(),
            source=self.name,
            amortised=amortised and part_price(amortised, accelerator) * count,
            cpus=round(cpus, 1),
            memory_gib=round(memory_gib, 1),
            slots=free,
            engine="slurm",
            money=MoneyKind.AMORTISED,
        )


def _with_slots(offer: Offer, ours: int) -> Offer:
    """The offer with its ``slots``, which include machines of the broker's own jobs: the planner subtracts those."""
    free = offer.slots or 0
    if free:
        return replace(offer, slots=free + ours, availability=Availability.AVAILABLE)
    because = "every such machine of the partition is in use"
    return replace(offer, slots=ours, availability=Availability.UNAVAILABLE, unavailable_because=because)


def parse_nodes(printed: str, jobs: str = "") -> tuple[list[SlurmNode], list[SkippedRow]]:
    """The nodes that accept jobs, from ``scontrol --oneliner --details show nodes``; other nodes and invalid lines as
    skipped rows. ``jobs``: from ``show jobs``, for the shards that are free."""
    nodes: list[SlurmNode] = []
    skipped: list[SkippedRow] = []
    for line in filter(None, (line.strip() for line in printed.splitlines())):
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        name = fields.get("NodeName", "?")
        state = fields.get("State", "")
        flags = state.rstrip("*$~#!%@^-").split("+")
        if flags[0] not in _TAKES_JOBS or set(flags) & {"DRAIN", "DOWN", "FAIL", "MAINTENANCE", "NOT_RESPONDING"}:
            skipped.append(SkippedRow("node_takes_no_jobs", f"{name}: {state or 'no state'}"))
            continue
        if state.endswith("*"):
            skipped.append(SkippedRow("node_takes_no_jobs", f"{name}: {state} does not answer"))
            continue
        try:
            cpus, memory = int(fields.get("CPUEfctv") or fields["CPUTot"]), int(fields["RealMemory"])
            free_cpus = cpus - int(fields["CPUAlloc"])
        except (KeyError, ValueError):
            skipped.append(SkippedRow("malformed_node", f"{name}: no count of CPUs or memory"))
            continue
        gres = fields.get("Gres", "")
        if _BARE_GRES.search(gres):
            skipped.append(SkippedRow("gpu_without_type", f"{name}: {gres} names no type of GPU; set one in gres.conf"))
        partitions = tuple(filter(None, fields.get("Partitions", "").split(",")))
        gpus = _gpus(gres)
        used = _gpus(fields.get("GresUsed", "")) + _sharded_cards(fields.get("GresUsed", ""), gpus)
        shard, shards, room = _shard_room(name, gres, fields.get("GresUsed", ""), gpus, jobs)
        nodes.append(SlurmNode(name, partitions, cpus, max(free_cpus, 0), memory, gpus, used, shard, shards, room))
    return nodes, skipped


def _shard_room(node: str, gres: str, used: str, gpus: Counter[str], jobs: str) -> tuple[str, int, tuple[int, ...]]:
    """The shards' GRES, their number, and how many of each card are free. A card is full that is in use without a job
    that is seen to use it. Nothing of a node whose shards are not the same on each card, of one kind."""
    match, cards = _ALL_SHARDS.search(gres), gpus.total()
    if match is None or len(gpus) != 1 or not cards or int(match["count"]) % cards:
        return "", 0, ()
    taken: Counter[int] = Counter()
    for part in _JOB_PART.finditer(jobs):
        if part["node"] == node:
            for own in _JOB_SHARDS.finditer(part["gres"]):
                taken[int(own["card"])] += int(own["count"])
    each = int(match["count"]) // cards
    busy = {card for spans in re.findall(r"\(IDX:([0-9,-]+)\)", used) for card in _numbers(spans)}
    room = [max(each - taken[card], 0) if card not in busy or taken[card] else 0 for card in range(cards)]
    return match["name"], int(match["count"]), tuple(room)


def _numbers(spans: str) -> list[int]:
    """``0-2,5`` as 0, 1, 2 and 5."""
    ends = (span.partition("-") for span in spans.split(","))
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def _gpus(text: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for match in _GRES.finditer(text):
        counts[match["type"]] += int(match["count"])
    return counts


def _sharded_cards(used: str, gpus: Counter[str]) -> Counter[str]:
    """The cards that carry shards, by type: Slurm gives none of them whole to a job. Without a type, a node's shards
    count for each of its types."""
    cards: Counter[str] = Counter()
    for shards in _SHARDS.finditer(used):
        number = len(_numbers(shards["cards"]))
        cards.update(dict.fromkeys([shards["type"]] if shards["type"] else gpus, number))
    return cards


def _own_nodes(printed: str) -> Counter[str]:
    """The nodes that the broker's own jobs occupy, by pool: the engine writes the pool into each job's comment."""
    counts: Counter[str] = Counter()
    for line in printed.splitlines():
        pool, _, nodes = line.strip().rpartition("|")
        if pool.startswith("slurm/") and nodes.isdecimal():
            counts[pool] += int(nodes)
    return counts


def _cluster(printed: str) -> str:
    match = re.search(r"^ClusterName\s*=\s*(\S+)", printed, re.MULTILINE)
    if match is None:
        raise GiveUp("scontrol show config names no ClusterName", where="slurm")
    return match[1]
