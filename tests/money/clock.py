"""The clocks of the money tests: the true time, and the broker's clock, which may be wrong for a while."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(slots=True)
class StageClock:
    """``true``: the time of clouds and nodes (UTC). ``wrong_by``: how far the broker's clock is ahead of it."""

    true: datetime
    wrong_by: timedelta = timedelta(0)
    scale: float = 1.0

    def now(self) -> datetime:
        """The time of the broker's clock."""
        return self.true + self.wrong_by

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits on this stage: time is passed by the script")
