"""Where the nodes of a gang meet, for the evidence of a command that failed because they did not."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from broker.agent.claims import Claim
from broker.agent.formats import Spec

_PORT = re.compile(r"(?i)\b(?:master[_-]port[=\s]+[\"']?|rdzv[_-]endpoint[=\s]+[^\s:]+:)(\d{1,5})\b")
# Of c10d, Gloo, NCCL, gRPC, asyncio, urllib3, ssh, and tracebacks of Python: "(10.0.0.1, 29500)", "[node-a]:29500",
# "10.0.0.1<39151>", "ipv4:10.0.0.1:8476", "('10.0.0.1', 29400)", "host='10.0.0.1', port=8000", "node-a port 22".
_TRIED = re.compile(r"([\w.:-]*[\w-])[\"'\])]*(?:<|:|,? *port[ =:]+|, *)(\d{2,5})\b(?!\.\d)")
_CONNECTION = re.compile(
    r"(?i)\b(?:re)?connect|econnrefused|timed out|time-?out|unreachable|no route|rendezvous|rdzv|c10d|socket|nccl|gloo"
)
_CALL = re.compile(r"\bconnect\w*\(|\bcreate_connection\(|\w*Store\(")  # in a traceback of Python
_REFUSED = re.compile(r"(?i)connection refused|econnrefused|timed out|unreachable|no route to host|failed to connect")
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104  # looked for in messages, never bound
_TORCH = re.compile(r"\btorchrun\b|torch\.distributed\.(?:run|launch)\b")
_TORCH_PORT = 29500  # where it names none
_PATIENCE = 3.0  # seconds for one connection
_MOST = 3  # connections to try again


def describe(gang: Sequence[Claim]) -> str:
    """``rank 0 on node-a (10.0.0.1), rank 1 on node-b (10.0.0.2)``."""
    return ", ".join(f"rank {claim.rank} on {claim.host} ({claim.address})" for claim in gang)


def absence(spec: Spec, gang: Sequence[Claim]) -> str:
    """Which nodes of the gang did not claim the attempt in time, and which did."""
    present = {claim.rank for claim in gang}
    absent = ", ".join(str(rank) for rank in range(spec.nodes) if rank not in present)
    reason = f"no agent of rank {absent} claimed the attempt within {spec.intervals.patience:g} s"
    return f"only {len(gang)} of {spec.nodes} nodes came up: {reason}; there is {describe(gang)}"


def connection_report(spec: Spec, rank: int, gang: Sequence[Claim], lines: Sequence[str] = ()) -> list[str]:
    """After a command of several nodes failed: whether the nodes that it tried can be reached from this one. Those are
    in the last ``lines`` of its output, or it is the first node at the ports that the job names, as with
    ``MASTER_PORT`` or ``--rdzv_endpoint``, or that are known, as of torchrun. Of the first node: where the others look
    for it. Empty if no node was tried, and no port is known."""
    if len(gang) < 2:
        return []
    report = [_report(rank, gang, name, port) for name, port in _tried(gang, lines)]
    if report:
        return report
    texts = (f"MASTER_PORT={spec.envs.get('MASTER_PORT', '')}", spec.command)
    ports = sorted({int(port) for text in texts for port in _PORT.findall(text) if int(port) < 1 << 16})
    if not ports and _TORCH.search(spec.command):
        ports = [_TORCH_PORT]
    if not ports:
        if any(map(_REFUSED.search, lines)):
            no_port = "no port is known to be tried again here: name it as MASTER_PORT under `envs:`"
            return [f"if rank {rank} did not reach one of the job's nodes: {describe(gang)}; {no_port}"]
        return []
    if rank == 0:
        return [f"the other nodes look for rank 0 at {gang[0].address}, port {ports[0]}; nodes: {describe(gang)}"]
    return [_report(rank, gang, gang[0].address, port) for port in ports]


def _tried(gang: Sequence[Claim], lines: Sequence[str]) -> list[tuple[str, int]]:
    """The nodes of the gang, by name or address, and the ports that the lines say were tried."""
    nodes = {name for claim in gang for name in (claim.host, claim.address)} | {*_LOOPBACK}
    pairs: dict[tuple[str, int], None] = {}
    for line in filter(_CONNECTION.search, lines):
        for match in _TRIED.finditer(line):
            name, port = match[1].rpartition("ipv4:")[2], int(match[2])
            if name not in nodes and _CALL.search(line):
                name = gang[0].address  # a variable of the program
            if name in nodes and 0 < port < 1 << 16:
                pairs[name, port] = None
    return list(pairs)[:_MOST]


def _report(rank: int, gang: Sequence[Claim], name: str, port: int) -> str:
    """What becomes of a connection from this node to that one, tried again now."""
    here = describe(gang[rank : rank + 1])
    if name in _LOOPBACK and rank:
        return f"{here} tried {name}, port {port}, which is itself; expected {describe(gang[:1])}, as in MASTER_ADDR"
    claim = next((claim for claim in gang if name in (claim.host, claim.address)), gang[0])
    return f"from {here} to {describe([claim])}, port {port}: {_connect(claim.address, port)}"


def _connect(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), _PATIENCE).close()
    except socket.timeout:
        return f"no answer within {_PATIENCE:g} s (a firewall, or another network?)"
    except OSError as error:
        return f"{error.strerror or error}"
    return "it answers"
