"""The base of what a fake answers: a field that the real service does not have is an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictBody(BaseModel):
    """No unknown fields, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
