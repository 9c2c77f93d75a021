"""Clouds, Kubernetes and everything else on which SkyPilot can start machines: one cluster per attempt.

The cluster's name is the attempt's key, so the API server can always be queried for it. Launching an existing cluster
would run the job again; the agent's claim in the run folder prevents that. The broker, never SkyPilot, decides where a
job continues after an interruption.

A cluster reported as up does not prove that the job runs; the heartbeat in the run folder does. SkyPilot checks the
clouds rarely, so the engine requests a refresh once a minute. It ends finished clusters; they count as gone when the
server no longer lists them.
"""

import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from broker.agent.store import make_private
from broker.core.errors import BrokerError, GiveUp, InvalidInput, RetryLater, TryAnotherOffer
from broker.core.market.capacity import Machine
from broker.core.ports import EngineState, EntryCommand, Launch, Observation
from broker.core.values.clock import Clock
from broker.engines.detached import KEY, Slot
from broker.engines.environment import Words
from broker.engines.handles import note_owner, owner_of, recorded_end
from broker.engines.runfolder.agent_bundle import write_agent
from broker.engines.runfolder.runfolder import RunFolder
from broker.engines.skypilot.aftermath import UNKNOWN, CloudWitness, folder_of, observe_vanished
from broker.engines.skypilot.evidence import ClusterEnds, MachineEnder, StatementQuery
from broker.engines.skypilot.machine_ends import (
    AwsZones,
    aws_end,
    aws_statement,
    gcp_end,
    gcp_statement,
    kubernetes_statement,
)
from broker.engines.skypilot.reservations import check_outside, check_room, reservation_settings
from broker.engines.skypilot.sdk import Sdk, SkyCluster, SkyRequest
from broker.engines.skypilot.task import (
    CLOUDS,
    ZoneNames,
    cluster_name,
    enter_script,
    flex_settings,
    has_queue,
    key_of,
    task_config,
)

_HANDLE = re.compile(r"skypilot:(?P<place>[0-9a-f]{12}):(?P<key>[A-Za-z0-9-]{1,40})")
_PATIENCE = timedelta(minutes=2)  # from the stop in the lease to the end by force: the grace and the last upload
# After this time, the end of a cluster is requested again: if the request had no effect, and in any case.
_DOWN_AGAIN, _DOWN_STUCK = timedelta(seconds=10), timedelta(minutes=10)
_REFUSED_WITHIN = timedelta(minutes=3)  # a cloud without capacity answers within this time
# The clouds that can tell why a machine ended, by SkyPilot's name. The other clouds cannot.
_STATEMENTS: Mapping[str, StatementQuery] = {
    "aws": aws_statement,
    "gcp": gcp_statement,
    "kubernetes": kubernetes_statement,
}
_ENDS: Mapping[str, MachineEnder] = {"aws": aws_end, "gcp": gcp_end}


class SkypilotSettings(BaseModel):
    """``[engines.skypilot]`` of gpubroker.toml, or ``GPUBROKER_ENGINES__SKYPILOT__…``.

    ``shared_disk``: whether nodes see this machine's run folders on a shared disk. ``environment``: variables of this
    process passed to every node as secrets (credentials for run folders where machines have no identity). ``clouds``:
    SkyPilot's cloud by provider, where names differ. ``look``: seconds between queries of the API server, each a
    request in its database; ``refresh``: seconds between its refreshes of the clouds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shared_disk: bool = False
    environment: Words = ()
    clouds: dict[str, str] = {}
    look: float = 5.0
    refresh: float = 60.0


@dataclass(frozen=True, slots=True)
class _ServerState:
    """One query of the server: time (monotonic), keys, result."""

    at: float
    keys: frozenset[str]
    requests: Mapping[str, SkyRequest]
    clusters: Mapping[str, SkyCluster]
    ends: ClusterEnds


class Skypilot:
    """The engine. Its handles are ``skypilot:<which API server>:<key>``."""

    name = "skypilot"
    honours = frozenset(
        {
            "several_nodes",
            "workdir",
            "setup",
            "file_mounts",
            "secrets",
            "image",
            "disk_tier",
            "network_tier",
            "skypilot_config",
            "another_machine",
        }
    )
    Settings: ClassVar = SkypilotSettings

    def __init__(
        self,
        home: Path,
        clock: Clock,
        settings: SkypilotSettings | None = None,
        sdk: Sdk | None = None,
        aws_zones: ZoneNames | None = None,
        query_by_cloud: Mapping[str, StatementQuery] = _STATEMENTS,
        cloud_ends: Mapping[str, MachineEnder] = _ENDS,
    ) -> None:
        """``home``: the engine's own folder, created when needed.

        ``clock`` gives times that SkyPilot does not report. ``query_by_cloud`` ask a cloud who ended a machine,
        ``cloud_ends`` end a machine that SkyPilot lost, both by SkyPilot's name of the cloud. Makes no connection.
        Raises `MissingExtra`.
        """
        self._root = home
        self._clock = clock
        self._settings = settings or SkypilotSettings()
        self._sdk = sdk or Sdk()
        self._aws_zones = aws_zones or AwsZones()
        self._witness = CloudWitness(query_by_cloud, cloud_ends)
        self._refreshed = -math.inf
        self._seen: _ServerState | None = None

    def cloud_problem(self, provider: str) -> str:
        """See `broker.core.ports.ChecksClouds`: asks SkyPilot's API server, and starts a local one if there is none."""
        cloud = self._settings.clouds.get(provider) or CLOUDS.get(provider)
        if cloud is None:
            return "SkyPilot starts no machines there"
        return "" if self._sdk.may_use(cloud) else f"SkyPilot's API server may not start machines of {cloud}"

    @property
    def remote(self) -> bool:
        return not self._settings.shared_disk

    def submit(self, launch: Launch) -> str:
        slot = self._slot(launch.key)
        if self.remote and launch.run_folder.startswith("file:"):
            raise InvalidInput(
                "run folders on this machine's disk are out of reach for machines elsewhere",
                where="GPUBROKER_RUNS",
                hint="set GPUBROKER_RUNS to a bucket (s3://…, gs://…, az://…); or, where nodes see this disk, "
                "GPUBROKER_ENGINES__SKYPILOT__SHARED_DISK=true",
            )
        make_private(slot.folder)
        from filelock import FileLock  # plans load this module for its features and need no lock

        with FileLock(slot.folder / "submit.lock", mode=0o600):
            stored = self.find(launch.key)
            if stored is not None:
                return stored
            clouds = {**CLOUDS, **self._settings.clouds}
            config = task_config(launch, self._archive(), self._secrets(launch), clouds, self._aws_zones)
            offer = launch.placement.offer
            if launch.reservations:
                check_room(clouds.get(offer.provider), offer.region, launch.reservations, launch.placement.nodes)
            record = {
                "run_folder": launch.run_folder,
                "nodes": launch.placement.nodes,
                "queued": has_queue(clouds.get(offer.provider)),
                "cloud": clouds.get(offer.provider),
                "region": offer.region,
                "reservations": list(launch.reservations),
                "at": self._clock.now().isoformat(),
            }
            slot.write("launch.json", record)
            note_owner(slot, launch, self._clock)
            return self._remember(
                slot,
                launch.key,
                self._sdk.launch(
                    config,
                    cluster_name(launch.key),
                    {**reservation_settings(launch.reservations), **flex_settings(launch)},
                ),
            )

    def find(self, key: str) -> str | None:
        slot = self._slot(key)
        if stored := slot.read("request.json"):
            return str(stored["handle"])
        # The server may know more than this folder: an interrupted launch, or one from another machine.
        launches = self._sdk.launches(cluster_name(key))
        if not launches:
            return None
        make_private(slot.folder)
        return self._remember(slot, key, launches[0].id)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        observations = {handle: self._observe_without_query(handle) for handle in handles}
        open_keys = {handle: self._key(handle) for handle, observation in observations.items() if observation is None}
        if open_keys:
            slots = {key: self._slot(key) for key in open_keys.values()}
            server_state = self._look(slots)
            for handle, key in open_keys.items():
                observations[handle] = self._observe(slots[key], key, server_state)
        return {handle: observation or UNKNOWN for handle, observation in observations.items()}

    def cancel(self, handle: str) -> None:
        key = self._own(handle)
        if key is None:
            return
        slot = self._slot(key)
        if slot.read("gone.json") is not None or not slot.folder.exists():
            return
        slot.keep_first("cancelled.json", {"wall": datetime.now(UTC).isoformat()})
        if not self._may_still_save(slot):
            self._end(slot, key)

    def machines(self) -> Iterator[Machine]:
        for name, cluster in self._sdk.clusters(None).items():
            if KEY.fullmatch(key := key_of(name)):
                store, _ = owner_of(self._slot(key))
                handle = f"skypilot:{self._sdk.place}:{key}"
                yield Machine(key, handle, store, cluster.since, f"SkyPilot: {cluster.status}")

    def end(self, handle: str) -> None:
        if key := self._own(handle):
            self._sdk.down(cluster_name(key))

    def way_in(self, handle: str, node: int, words: Sequence[str], *, terminal: bool) -> EntryCommand:
        key = self._own(handle)
        if key is None:
            raise GiveUp(f"{handle} belongs to another SkyPilot API server", hint="`sky api info` shows the one in use")
        options, host = self._sdk.ssh_host(cluster_name(key), node)
        options += ["-o", "LogLevel=ERROR", "-t" if terminal else "-T"]
        return EntryCommand(("ssh", *options, host, enter_script(key, node, words)))

    def _slot(self, key: str) -> Slot:
        return Slot.of(self._root, key)

    def _archive(self) -> Path:
        try:
            return write_agent(self._root)
        except OSError as error:
            raise RetryLater(f"the agent cannot be packed: {error.strerror or error}", where=str(self._root)) from error

    def _secrets(self, launch: Launch) -> dict[str, str]:
        passed_on = {name: os.environ[name] for name in self._settings.environment if name in os.environ}
        return {**passed_on, **launch.secrets}

    def _remember(self, slot: Slot, key: str, request: str) -> str:
        handle = f"skypilot:{self._sdk.place}:{key}"
        return str(slot.keep_first("request.json", {"handle": handle, "request": request})["handle"])

    def _own(self, handle: str) -> str | None:
        """The key of a handle of this API server; None for others."""
        parts = _HANDLE.fullmatch(handle)
        return parts["key"] if parts is not None and parts["place"] == self._sdk.place else None

    def _key(self, handle: str) -> str:
        parts = _HANDLE.fullmatch(handle)
        assert parts is not None, "the others are known"
        return parts["key"]

    def _observe_without_query(self, handle: str) -> Observation | None:
        """The observation of a handle that needs no query: invalid, of another server, or gone; else None."""
        parts = _HANDLE.fullmatch(handle)
        if parts is None:
            return UNKNOWN
        if parts["place"] != self._sdk.place:
            evidence = "another SkyPilot API server runs it; `sky api info` shows the one in use"
            return Observation(EngineState.ELSEWHERE, evidence=evidence)
        gone_record = self._slot(parts["key"]).read("gone.json")
        return recorded_end(gone_record) if gone_record else None

    def _requests(self, slots: Mapping[str, Slot]) -> dict[str, SkyRequest]:
        """The launch requests that are not known to have ended, by key."""
        ids = {}
        for key, slot in slots.items():
            request = (slot.read("request.json") or {}).get("request")
            if request and slot.read("launched.json") is None:
                ids[str(request)] = key
        return {ids[id]: request_state for id, request_state in self._sdk.requests(list(ids)).items() if id in ids}

    def _look(self, slots: Mapping[str, Slot]) -> _ServerState:
        """The server's state of those keys; at most ``look`` seconds old."""
        last, now = self._seen, time.monotonic()
        if last is not None and now - last.at < self._settings.look and slots.keys() <= last.keys:
            return last
        # Read requests before clusters: a request that has succeeded by now has a cluster, or had one.
        requests = self._requests(slots)
        clusters = self._sdk.clusters([cluster_name(key) for key in slots])
        settled = [name for name, cluster in clusters.items() if cluster.status != "init"]
        if settled and now - self._refreshed >= self._settings.refresh:
            self._refreshed = now
            self._sdk.refresh(settled)
        missing = [slot for key, slot in slots.items() if cluster_name(key) not in clusters]
        self._seen = _ServerState(now, frozenset(slots), requests, clusters, ClusterEnds(self._sdk, missing))
        return self._seen

    def _observe(self, slot: Slot, key: str, server_state: _ServerState) -> Observation:
        request, cluster = server_state.requests.get(key), server_state.clusters.get(cluster_name(key))
        if request is not None and request.finished:
            error = None if request.status == "succeeded" else self._sdk.failure(request.id)
            refused = isinstance(error, TryAnotherOffer) and self._failed_quickly(slot)
            outcome = {"status": request.status, "failure": str(error) if error else "", "refused": refused}
            slot.keep_first("launched.json", outcome)
        launching = request is not None and not request.finished
        cancelled = slot.read("cancelled.json") is not None
        if cluster is None:
            if request is not None and launching:
                # The server has not started the request, or has not requested a machine yet.
                state = EngineState.QUEUED if request.status == "pending" else EngineState.PENDING
                return Observation(state, evidence=f"SkyPilot's launch is {request.status}")
            if not slot.folder.exists():
                return UNKNOWN
            return observe_vanished(slot, key, server_state.ends, self._witness, self._clock.now())
        outside_failure = check_outside(slot, key, self._clock.now())
        outcome = slot.read("launched.json") or {}
        # States that do not recover may cost money: a half-failed launch, dead nodes.
        broken = not cancelled and not launching and (cluster.status != "up" or bool(outcome.get("failure")))
        broken = broken or bool(outside_failure)
        stuck = ""
        if broken or (cancelled and not self._may_still_save(slot)):
            try:
                self._end(slot, key)
            except BrokerError as error:  # the other machines are still observed
                stuck = f"; it cannot be ended: {error}"
        queued = bool((slot.read("launch.json") or {}).get("queued"))
        since = None if queued and cluster.status == "init" else self._since(slot, cluster)
        if launching and cluster.status != "up":
            state = EngineState.QUEUED if queued else EngineState.PENDING
            return Observation(state, since, evidence=f"SkyPilot: {cluster.why or 'starting'}")
        reason = outside_failure or outcome.get("failure") or cluster.why
        ending = stuck or ("; being taken down" if slot.read("down.json") else "")
        state = EngineState.PENDING if since is None else EngineState.UP
        return Observation(
            state, since, evidence=f"SkyPilot: {cluster.status}{ending}" + (f": {reason}" if reason else "")
        )

    def _since(self, slot: Slot, cluster: SkyCluster) -> datetime:
        """Start of billing (UTC): when SkyPilot asked the cloud for machines, since they may exist from then on. Never
        before the launch, because SkyPilot truncates times to seconds.
        """
        launch = slot.read("launch.json")
        since = max(cluster.since, datetime.fromisoformat(launch["at"])) if launch else cluster.since
        return datetime.fromisoformat(slot.keep_first("up.json", {"since": since.isoformat()})["since"])

    def _failed_quickly(self, slot: Slot) -> bool:
        """Whether the launch failed so quickly that no machine can have existed. SkyPilot also reports "no capacity" if
        some machines of a gang came up, or if machines came up and did not answer, but that takes longer.
        """
        launch, up = slot.read("launch.json") or {}, slot.read("up.json")
        if int(launch.get("nodes", 2)) > 1:
            return False
        return up is None or self._clock.now() - datetime.fromisoformat(up["since"]) <= _REFUSED_WITHIN

    def _may_still_save(self, slot: Slot) -> bool:
        """Whether the agent was told to stop and still has time to save."""
        cancelled = slot.read("cancelled.json")
        if cancelled is None or datetime.now(UTC) - datetime.fromisoformat(cancelled["wall"]) > _PATIENCE:
            return False
        try:
            launch = slot.read("launch.json")
            folder = folder_of(slot)
            if launch is None or folder is None or not folder.claims or folder.exit is not None:
                return False
            runs, attempt = RunFolder.of_attempt(str(launch["run_folder"]))
            lease = runs.read_lease(attempt)
            return lease is not None and lease.stop is not None
        except BrokerError:
            return True  # the node may reach the run folder although the broker does not

    def _end(self, slot: Slot, key: str) -> None:
        """Request the end of the cluster, and request it again if it had no effect."""
        down_request = slot.read("down.json")
        if down_request is not None:
            elapsed = datetime.now(UTC) - datetime.fromisoformat(down_request["wall"])
            if elapsed < _DOWN_AGAIN or (elapsed < _DOWN_STUCK and not self._is_finished(down_request["request"])):
                return
        else:
            self._witness.before_end(slot, key)
        launch = (slot.read("request.json") or {}).get("request")
        if launch and slot.read("launched.json") is None:
            self._sdk.stop_launching(launch)
        slot.write("down.json", {"wall": datetime.now(UTC).isoformat(), "request": self._sdk.down(cluster_name(key))})

    def _is_finished(self, id: str) -> bool:
        request = self._sdk.requests([id]).get(id)
        return request is None or request.finished
