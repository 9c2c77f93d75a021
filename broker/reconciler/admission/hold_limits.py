"""The limits that determine a hold. Separate from the gate, so that code that prints them does not import placement."""

from enum import StrEnum


class HoldLimit(StrEnum):
    """The limit of a job that determines the amount of its hold."""

    MAX_COST = "max_cost"
    MAX_DURATION = "max_duration"
    EXPECTED = "expected"
    SESSION = "session"
