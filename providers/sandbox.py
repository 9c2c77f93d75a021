"""The simulated market of `broker.engines.sandbox.market` as a provider. Every offer is marked as simulated."""

from collections.abc import Iterator
from typing import ClassVar

from pydantic import AwareDatetime, Field

from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from broker.engines.sandbox.market import DEFAULT_SEED, DEFAULT_START, World
from providers.registry import ProviderSettings


class SandboxSettings(ProviderSettings):
    """``scenario``: ``default``, ``demo``, or the path of a scenario file. ``starts_at``: the broker time at which the
    scenario begins. The sandbox engine must have the same three values, which define the market."""

    scenario: str = "default"
    seed: int = Field(default=DEFAULT_SEED, ge=0)
    starts_at: AwareDatetime = DEFAULT_START


class SandboxProvider:
    """The simulated market's offers at the clock's time."""

    name = "sandbox"
    refresh_before_deciding = True
    Settings: ClassVar = SandboxSettings

    def __init__(self, *, clock: Clock, settings: SandboxSettings | None = None) -> None:
        """Raises `InvalidInput` for a scenario that cannot be read. ``world.faults`` injects faults."""
        resolved = settings or SandboxSettings()
        self._clock = clock
        self.world = World.load(resolved.scenario, resolved.seed, resolved.starts_at)

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """The whole market; it is small, and the query only a hint."""
        return self.world.offers_at(self._clock.now())
