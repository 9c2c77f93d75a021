"""An offer as one job gets it: its part of a divided machine, or the machine with the disk that is rented for it. Pure.

Defaults for what the job file does not say, on a machine with n GPUs of a kind:

    a job with g GPUs    g/n of three quarters of the CPUs (rounded down to whole CPUs, if at least one), g/n of half
                         of the memory; slices at most their share of one card
    a job without GPUs   one CPU, and the same fraction of the memory; it may use all CPUs that are free when it starts
    a job that names the instance type and no accelerators: the whole machine

So jobs with GPUs leave CPUs and memory for jobs without. A job with several nodes gets one part that is as many times
as large: its nodes run next to each other.
"""

from dataclasses import replace
from fractions import Fraction

from broker.core.job.jobs import Job, MachineRequest
from broker.core.market.accelerators import card_share
from broker.core.market.offers import Offer
from broker.core.market.shares import MachineShare
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import disk_price

_CPU = 1000


def share_of(offer: Offer, request: MachineRequest) -> MachineShare:
    """The part of the whole machine for a job with this request; never more than the machine has."""
    total = offer.has
    takes_whole_machine = request.accelerator is None and request.instance_type is not None
    gpus = offer.count if takes_whole_machine else request.count if request.accelerator is not None else 0
    part = gpus * min(Fraction(1, offer.count or 1), card_share(offer.accelerator)[1])
    if request.cpus is not None:
        cpus = round(request.cpus * _CPU)
    elif takes_whole_machine:
        cpus = total.milli_cpus
    elif gpus:
        cpus = int(total.milli_cpus * 3 * part / 4)
        cpus = cpus // _CPU * _CPU or cpus
    else:
        cpus = min(_CPU, total.milli_cpus)
    if request.memory_gib is not None:
        mib = MachineShare.of(0, request.memory_gib).mib
    elif takes_whole_machine:
        mib = total.mib
    elif gpus:
        mib = int(total.mib * part / 2)
    else:
        mib = total.mib * cpus // max(total.milli_cpus, 1)
    accelerators = ((offer.accelerator, gpus),) if gpus and offer.accelerator is not None else ()
    return MachineShare(cpus, mib, accelerators).at_most(total)


def offer_part(offer: Offer, request: MachineRequest, nodes: int = 1, unknown_disk: Money | None = None) -> Offer:
    """The offer as the job gets it. Of a divided machine: the part of all nodes of the job, priced by the largest
    fraction that it takes of CPUs, memory or GPUs. Of a machine with which a disk is rented: priced with the job's
    disk, whose price ``unknown_disk`` bounds if it is not known. Other offers stay unchanged."""
    if not offer.divided or offer.whole is not None:
        return _with_disk(offer, disk_price(offer, request, unknown_disk))
    share = share_of(offer, request) * nodes
    fraction = share.part_of(offer.has)
    return replace(
        offer,
        accelerator=offer.accelerator if share.gpu_count else None,
        count=share.gpu_count,
        cpus=share.cpus,
        memory_gib=share.memory_gib,
        price=None if offer.price is None else offer.price.share(fraction.numerator, fraction.denominator),
        amortised=None if offer.amortised is None else offer.amortised.share(fraction.numerator, fraction.denominator),
        whole=offer.has,
    )


def _with_disk(offer: Offer, disk: Money) -> Offer:
    if not disk or offer.price is None or offer.disk:
        return offer
    return replace(offer, price=offer.price + disk, disk=disk)


def may_use_free_cpus(offer: Offer, job: Job) -> bool:
    """Whether the job may use all CPUs of a divided machine that are free when it starts, though it counts as one: it
    gets no GPU, and its file does not say how many CPUs it needs."""
    return offer.whole is not None and not offer.count and all(request.cpus is None for request in job.resources)


def current_price(current: Offer, placed: Offer) -> Money | None:
    """The current price per hour (USD) of a machine with its disk, or the part of one, that a job was placed on.
    ``current``: the offer of the whole machine now; ``placed``: the offer as the job got it."""
    if current.price is None:
        return None
    if placed.whole is None:
        return current.price + placed.disk
    fraction = placed.has.part_of(placed.whole)
    return current.price.share(fraction.numerator, fraction.denominator)


def machines(offer: Offer, nodes: int) -> int:
    """How many machines of the offer a job with so many nodes gets: one if they run next to each other on a part of
    it."""
    return 1 if offer.divided else nodes


def shortage(offer: Offer, request: MachineRequest, nodes: int = 1) -> str:
    """Why a divided machine is too small for the job's nodes, or has too little free now; empty if neither."""
    if not offer.divided or offer.whole is not None:
        return ""
    share = share_of(offer, request) * nodes
    if offer.has < share:
        return f"has {offer.has}; {nodes} nodes on one machine need {share}"
    if offer.left is None:
        return ""
    return f"{offer.left.at_most(offer.has)} free, needs {share}" if offer.left < share else ""
