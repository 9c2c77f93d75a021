"""Priors for interruption rates and return times of unmeasured capacity.

Used until a provider's figure or recorded history is available; a plan names the figure it used.

- ``spot``: 0.15 per machine and hour, a mean life of 6.7 h. Public availability traces of AWS GPU spot pools (2022 and
  2023, https://github.com/skypilot-org/spot-traces) show mean lives of 0.6 to 8 h, H100 zones elsewhere far longer:
  the figure is at the calm end of the former and pessimistic for the latter. An assumption, not a measurement.
- other capacity is lost only to hardware failures: 419 unexpected interruptions in 54 days on 16,384 H100 GPUs give
  2.0e-5 per GPU and hour (Llama 3 Herd of Models, 2024, table 5). Machines without accelerators count as one GPU.
- lost capacity returns after two hours: 1.3 h (2022) and 2.3 h (2023) on average in the AWS traces above.
"""

from __future__ import annotations

from broker.core.market.offers import CapacityType, Offer

SPOT_PER_MACHINE_HOUR = 0.15
FAILURES_PER_GPU_HOUR = 419 / (54 * 24 * 16_384)
RETURNS_PER_HOUR = 0.5


def interruption_rate(offer: Offer) -> float:
    """Expected interruptions per hour of *one* machine of the offer: the provider's own figure if there is one."""
    if offer.interruption_rate is not None:
        return offer.interruption_rate
    failures = FAILURES_PER_GPU_HOUR * max(offer.count, 1)
    return SPOT_PER_MACHINE_HOUR + failures if offer.capacity_type is CapacityType.SPOT else failures


def time_to_return(offer: Offer) -> float:
    """Hours until lost capacity of the offer's pool returns, on average."""
    return 1 / RETURNS_PER_HOUR
