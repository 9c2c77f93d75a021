"""Where the nodes of a gang meet, for the evidence of a command that failed because they did not."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from broker.agent.claims import Claim
from broker.agent.formats import Spec

_PORT = re.compile(r"(?i)\b(?:master[_-]port[=\s]+[\"']?|rdzv[_-]endpoint[=\s]+[^\s:]+:)(\d{1,5})\b")
_TORCH = re.compile(r"\btorchrun\b|torch\.distributed\.(?:run|launch)\b")
_TORCH_PORT = 29500  # where it names none
_PATIENCE = 3.0  # seconds for one connection


def describe(gang: Sequence[Claim]) -> str:
    """``rank 0 on node-a (10.0.0.1), rank 1 on node-b (10.0.0.2)``."""
    return ", ".join(f"rank {claim.rank} on {claim.host} ({claim.address})" for claim in gang)


def absence(spec: Spec, gang: Sequence[Claim]) -> str:
    """Which nodes of the gang did not claim the attempt in time, and which did."""
    present = {claim.rank for claim in gang}
    absent = ", ".join(str(rank) for rank in range(spec.nodes) if rank not in present)
    reason = f"no agent of rank {absent} claimed the attempt within {spec.intervals.patience:g} s"
    return f"only {len(gang)} of {spec.nodes} nodes came up: {reason}; there is {describe(gang)}"


def connection_report(spec: Spec, rank: int, gang: Sequence[Claim]) -> list[str]:
    """After a command of several nodes failed: whether the first node can be reached from this one at the ports that
    the job names. Of the first node: where the others look for it. Empty if no port is named, as with
    ``MASTER_PORT`` or ``--rdzv_endpoint``, and none is known, as of torchrun."""
    texts = (f"MASTER_PORT={spec.envs.get('MASTER_PORT', '')}", spec.command)
    ports = sorted({int(port) for text in texts for port in _PORT.findall(text) if int(port) < 1 << 16})
    if not ports and _TORCH.search(spec.command):
        ports = [_TORCH_PORT]
    if not ports or len(gang) < 2:
        return []
    if rank == 0:
        return [f"the other nodes look for rank 0 at {gang[0].address}, port {ports[0]}; nodes: {describe(gang)}"]
    route = f"from {describe(gang[rank : rank + 1])} to {describe(gang[:1])}"
    return [f"{route}, port {port}: {_connect(gang[0].address, port)}" for port in ports]


def _connect(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), _PATIENCE).close()
    except socket.timeout:
        return f"no answer within {_PATIENCE:g} s (a firewall, or another network?)"
    except OSError as error:
        return f"{error.strerror or error}"
    return "it answers"
