"""The keys of PostgreSQL's advisory locks, in one place: two uses with the same key would wait for each other."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class AdvisoryLock(IntEnum):
    """Arbitrary constants; advisory locks are per database.

    For each member of `LeaderRole` there is one of the same name.
    """

    WRITE = 0x67707562
    JOBS = 0x67706C64
    PRICES = 0x67706C65
    LOCAL = 0x67706C66
    SWEEP = 0x67706C67
    PURCHASES = 0x67706C68
    CAPACITY = 0x67706C69
    RETENTION = 0x67706C6A
    OUTSIDE = 0x67706C6B
    SNAPSHOTS = 0x67706C6D
