"""The base class of a fake's answers: a field that the real service lacks is an error."""

from pydantic import BaseModel, ConfigDict


class StrictBody(BaseModel):
    """No unknown fields, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
