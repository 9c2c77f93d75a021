"""Google's data on spot machines: obtainability, preemption history, and expected uptime.

Asked by region and machine type (advice.capacity, advice.capacityHistory). ``obtainability`` (0 to 1) is the score of
the zone that Google recommends. The rate of interruptions comes from the last month: −ln(1 − share) ÷ exposure, where
share is the mean over its days of the machines that were preempted among those that ended, and exposure (the setting
``spot_exposure_hours``) is how long such machines are taken to run.

``estimatedUptime`` is the time that most machines will survive, in steps up to one hour ("View availability of Spot
VMs"). Read as a median it gives ln 2 ÷ uptime, which is more than the expected rate. So it counts where it is shorter
than that hour, which is a warning, and where there is no history.
"""

import math
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from broker.core.errors import BrokerError
from broker.core.market.offers import Offer
from providers.failures import Failures
from providers.gcp.calls import GcpCaller, resource_name
from providers.gcp.machines import GcpMachine
from providers.gcp.refusals import BadRequest, NotFound

_MAX_CONCURRENT = 8
_CACHE_TIME = timedelta(hours=1)
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,9})?)s")
_HIGHEST_SHARE = 0.99  # limits the rate if all of a few machines were preempted
_SHORTEST, _LONGEST = 60.0, 3600.0  # seconds; a shorter life is an error, and a longer one is not reported
_SPOT = {"scheduling": {"provisioning_model": "SPOT"}}


@dataclass(frozen=True, slots=True)
class GcpSpotAdvice:
    """Advice on one machine type in one region: scores (0 to 1) by zone, and interruptions per machine and hour."""

    scores: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None


AdviceByPool = Mapping[tuple[str, str], GcpSpotAdvice]
_NONE = GcpSpotAdvice()


class Adviser:
    """Queries advice, and caches it for an hour: it takes a call for each machine type and region."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], tuple[datetime, GcpSpotAdvice]] = {}

    def advice(
        self, asking: GcpCaller, shapes: Iterable[GcpMachine], exposure: float, failures: Failures
    ) -> AdviceByPool:
        """Advice by region and machine type, for machine types with built-in accelerators. Stops at the first failure:
        spot prices matter more.
        """
        now = asking.clock.now()
        pools = {(shape.region, shape.name) for shape in shapes if not shape.attached}
        self._heard = {pool: cached for pool, cached in self._heard.items() if now - cached[0] < _CACHE_TIME}
        errors: list[BrokerError] = []

        def query(pool: tuple[str, str]) -> None:
            if errors:
                return
            try:
                self._heard[pool] = now, _advice(asking, *pool, exposure)
            except BrokerError as error:
                errors.append(error)

        with ThreadPoolExecutor(_MAX_CONCURRENT, "gcp") as threads:
            list(threads.map(query, sorted(pools - self._heard.keys())))
        for error in errors[:1]:
            failures.add(error)
        return {pool: self._heard[pool][1] for pool in pools if pool in self._heard}


def with_advice(offer: Offer, advice: AdviceByPool) -> Offer:
    """The spot offer with the advice on its machine in its region and zone."""
    entry = advice.get((offer.region, offer.instance_type), _NONE)
    return replace(offer, score=entry.scores.get(offer.zone or ""), interruption_rate=entry.rate)


def _advice(caller: GcpCaller, region: str, machine_type: str, exposure: float) -> GcpSpotAdvice:
    """Google has no advice on some machines, and none in some regions (400, 404)."""
    scores: dict[str, float] = {}
    life: float | None = None
    rate: float | None = None
    with suppress(NotFound, BadRequest):
        scores, life = _capacity(caller, region, machine_type)
    with suppress(NotFound, BadRequest):
        rate = _interruption_rate(caller, region, machine_type, exposure)
    if life is not None and (rate is None or life < _LONGEST):
        rate = max(rate or 0.0, math.log(2) * 3600 / life)
    return GcpSpotAdvice(scores, rate)


def _capacity(caller: GcpCaller, region: str, machine_type: str) -> tuple[dict[str, float], float | None]:
    answer = caller.call(
        "AdviceClient",
        "capacity",
        region,
        project=caller.login.project,
        region=region,
        capacity_advice_request_resource={
            "size": 1,
            "distribution_policy": {"target_shape": "ANY_SINGLE_ZONE"},
            "instance_properties": _SPOT,
            "instance_flexibility_policy": {"instance_selections": {"machine": {"machine_types": [machine_type]}}},
        },
    )
    scores: dict[str, float] = {}
    lives: list[float] = []
    for recommendation in answer.recommendations:
        score, life = recommendation.scores.obtainability, _seconds(recommendation.scores.estimated_uptime)
        if life is not None:
            lives.append(life)
        for shard in recommendation.shards:
            if 0 <= score <= 1 and resource_name(shard.machine_type) == machine_type:
                zone = resource_name(shard.zone)
                scores[zone] = max(score, scores.get(zone, 0.0))
    return scores, max(lives, default=None)


def _interruption_rate(caller: GcpCaller, region: str, machine_type: str, exposure: float) -> float | None:
    answer = caller.call(
        "AdviceClient",
        "capacity_history",
        region,
        project=caller.login.project,
        region=region,
        capacity_history_request_resource={
            "types": ["PREEMPTION"],
            "instance_properties": {"machine_type": machine_type, **_SPOT},
        },
    )
    rates = [record.preemption_rate for record in answer.preemption_history]
    shares = [rate for rate in rates if 0 <= rate <= 1]  # without NaN
    if not shares:
        return None
    return abs(math.log1p(-min(sum(shares) / len(shares), _HIGHEST_SHARE))) / exposure


def _seconds(duration: str) -> float | None:
    match = _DURATION.fullmatch(duration)
    return float(match[1]) if match and float(match[1]) >= _SHORTEST else None
