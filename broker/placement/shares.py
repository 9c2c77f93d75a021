"""Which part of a divided machine a job is given. Pure.

What the job file does not say has a default, on a machine with n GPUs of a kind:

    a job with g GPUs    g/n of three quarters of the CPUs (cut to whole ones if one is left), g/n of half the memory
    a job without        one CPU, and the memory that falls to so many CPUs
    a job that names the instance type, and no accelerators: all of it

so that jobs with GPUs leave something for jobs without.
"""

from __future__ import annotations

from dataclasses import replace

from broker.core.job.jobs import MachineRequest
from broker.core.market.offers import Offer
from broker.core.market.shares import MachineShare
from broker.core.values.money import Money

_CPU = 1000


def share_of(offer: Offer, wanted: MachineRequest) -> MachineShare:
    """What a job that asks for this is given of the whole machine; never more than there is of anything."""
    has = offer.has
    everything = wanted.accelerator is None and wanted.instance_type is not None
    gpus = offer.count if everything else wanted.count if wanted.accelerator is not None else 0
    if wanted.cpus is not None:
        cpus = round(wanted.cpus * _CPU)
    elif everything:
        cpus = has.milli_cpus
    elif gpus:
        cpus = has.milli_cpus * 3 * gpus // (4 * offer.count)
        cpus = cpus // _CPU * _CPU or cpus
    else:
        cpus = min(_CPU, has.milli_cpus)
    if wanted.memory_gib is not None:
        mib = MachineShare.of(0, wanted.memory_gib).mib
    elif everything:
        mib = has.mib
    elif gpus:
        mib = has.mib * gpus // (2 * offer.count)
    else:
        mib = has.mib * cpus // max(has.milli_cpus, 1)
    given = ((offer.accelerator, gpus),) if gpus and offer.accelerator is not None else ()
    return MachineShare(cpus, mib, given).at_most(has)


def part(offer: Offer, wanted: MachineRequest) -> Offer:
    """The offer as the job gets it: its part of a divided machine, at the price of the largest part that it takes of
    anything there; else the offer as it is."""
    if not offer.divided or offer.whole is not None:
        return offer
    share = share_of(offer, wanted)
    used = share.part_of(offer.has)
    return replace(
        offer,
        accelerator=offer.accelerator if share.gpu_count else None,
        count=share.gpu_count,
        cpus=share.cpus,
        memory_gib=share.memory_gib,
        price=None if offer.price is None else offer.price.share(used.numerator, used.denominator),
        amortised=None if offer.amortised is None else offer.amortised.share(used.numerator, used.denominator),
        whole=offer.has,
        left=None,
    )


def price_now(told: Offer, had: Offer) -> Money | None:
    """What an hour costs by now of what somebody has there, a machine or a part of it. ``told``: the offer as it is."""
    if told.price is None or had.whole is None:
        return told.price
    used = had.has.part_of(had.whole)
    return told.price.share(used.numerator, used.denominator)


def lacking(offer: Offer, wanted: MachineRequest) -> str:
    """What of a divided machine is in use so that the job has to wait; empty where its part is free."""
    if offer.left is None or not offer.divided:
        return ""
    share = share_of(offer, wanted)
    return f"{offer.left.at_most(offer.has)} free, needs {share}" if offer.left < share else ""
