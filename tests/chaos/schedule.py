"""Which fault strikes when: drawn from a seed, so that a run can be repeated. Pure."""

import random
from dataclasses import dataclass

# How long each kind of fault lasts, in seconds, from and to; 0 for what happens at a stroke.
KINDS: dict[str, tuple[float, float]] = {
    "broker_killed": (0, 0),
    "broker_frozen": (4, 12),
    "store_restarted": (1, 5),
    "object_store_errors": (4, 8),
    "object_store_delays": (4, 8),
    "clock_forward": (5, 12),
    "clock_backward": (5, 12),
    "clock_over_midnight": (8, 14),
    "row_unreadable": (3, 10),
    "engine_says_running": (25, 35),
    "engine_loses_handles": (4, 8),
    "engine_repeats_itself": (8, 15),
    "machine_killed": (0, 0),
    "guard_killed": (0, 0),
    "agent_frozen": (3, 8),
    "notice_late": (0, 0),
    "notice_never": (0, 0),
    "disk_filled": (3, 8),
    "slurm_errors": (6, 12),
    "slurm_nonsense": (6, 12),
}
# Those for which the machine must have a Slurm.
ON_SLURM = ("slurm_errors", "slurm_nonsense")
# Faults that need something to lie about are followed by one that gives it: a machine dies while the engine denies it.
COMPANIONS = {"engine_says_running": "machine_killed"}
BETWEEN = (1.5, 6.0)  # seconds from one strike to the next


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: ``at`` and ``lasts`` in seconds, ``draw`` in [0, 1) for whatever else there is to choose."""

    at: float
    kind: str
    lasts: float
    draw: float


def plan(seed: int, seconds: float, kinds: tuple[str, ...]) -> list[Strike]:
    """Strikes over so many seconds: every kind once before any comes again, in a new order each time."""
    chance = random.Random(f"chaos {seed}")
    found: list[Strike] = []
    at = 3.0
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            for one in filter(None, (kind, COMPANIONS.get(kind))):
                found.append(Strike(at, one, chance.uniform(*KINDS[one]), chance.random()))
            at += chance.uniform(*BETWEEN)
            if at >= seconds:
                return found
