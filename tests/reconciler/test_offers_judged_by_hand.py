"""What the planner asks before it places a job: free machines, shares, switches and denials, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from broker.core.job.jobs import MachineRequest
from broker.core.market.offers import CapacityType, Offer
from broker.core.market.shares import MachineShare
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, LiveAttempt, Source, Verdict
from broker.core.ports import PolicyDefaults
from broker.core.values.money import Money
from broker.placement.pricing.shares import offer_part
from broker.reconciler.admission.admission import (
    as_if_unoccupied,
    denials,
    is_still_free,
    reference_price_denial,
    subtract_occupied,
)
from broker.reconciler.admission.hold_limits import HoldLimit
from tests.reconciler.test_admission_by_hand import (
    CASH,
    JOB,
    NOW,
    GateByMachine,
    at,
    sold,
    submitted,
)


def live(pool: str, nodes: int = 1) -> LiveAttempt:
    return LiveAttempt("j-9", "bob", None, None, "training", None, 8, "H100", "aws", CASH, pool=pool, nodes=nodes)


@pytest.mark.parametrize(
    ("slots", "taken", "nodes", "free"),
    [(3, 1, 2, True), (3, 2, 2, False), (3, 2, 1, True), (2, 0, 2, True), (2, 0, 3, False), (1, 5, 1, False)],
)
def test_a_gang_needs_all_its_machines_free(slots: int, taken: int, nodes: int, free: bool) -> None:
    offer = sold(slots=slots)
    elsewhere = sold("other", slots=0)
    others = [live(offer.pool, taken)] if taken else []
    assert is_still_free(at(offer, nodes), [elsewhere, offer], [*others, live(elsewhere.pool)]) is free
    assert is_still_free(at(replace(offer, slots=None), nodes), [offer], others), "what is not counted is free"


@pytest.mark.parametrize(
    ("milli_cpus", "mib", "left", "free"),
    [
        (4000, 4096, None, True),  # to the last CPU
        (4001, 4096, None, False),
        (1000, 12_288, None, True),  # to the last MiB
        (1000, 12_289, None, False),
        (1000, 1024, MachineShare(5000, 8192), True),  # another store has some, too
        (1000, 1024, MachineShare(4999, 8192), False),
    ],
)
def test_a_part_of_this_machine_is_free_where_all_of_it_is_left(
    milli_cpus: int, mib: int, left: MachineShare | None, free: bool
) -> None:
    """Four CPUs and 4 GiB of eight and 16 are wanted."""
    machine = replace(
        sold(capacity=CapacityType.OWNED, engine="local", slots=1, cpus=8.0, memory_gib=16.0), accelerator=None, count=0
    )
    wanted = offer_part(machine, MachineRequest(cpus=4, memory_gib=4))
    other = replace(live(""), gpus=0, accelerator=None, capacity=machine.capacity, milli_cpus=milli_cpus, mib=mib)
    elsewhere = replace(other, capacity="owned/local/another", milli_cpus=8000, mib=16_384)
    assert is_still_free(at(wanted), [replace(machine, left=left)], [other, elsewhere]) is free


def test_a_pool_is_free_only_as_far_as_all_that_is_told_of_it_says_so() -> None:
    place = at(sold(slots=3), nodes=2)
    assert is_still_free(place, [sold(slots=3), sold(slots=2)], [])
    assert not is_still_free(place, [sold(slots=3), sold(slots=1)], [])
    assert not is_still_free(place, [sold(slots=None)], []), "nobody tells any more how many there are"
    assert is_still_free(place, [sold("other", slots=0)], []), "that is another pool"


@pytest.mark.parametrize(
    ("cost", "held", "limit"),
    [
        (None, "120.60", HoldLimit.MAX_DURATION),
        ("120.60", "120.60", HoldLimit.MAX_DURATION),
        ("120.59", "120.59", HoldLimit.MAX_COST),
    ],
)
def test_which_limit_decides_the_hold(cost: str | None, held: str, limit: HoldLimit) -> None:
    """Ten hours at $12, and three minutes for stopping."""
    job = JOB.model_copy(update={"max_cost": None if cost is None else Money.usd(cost)})
    found = submitted(GateByMachine(), at(sold()), job=job)
    assert (found.money, found.limited_by) == ({CASH: Money.usd(held)}, {CASH: limit})


def test_machines_that_run_are_taken_off_what_is_free() -> None:
    limited, full, open_ = sold("a", slots=3), sold("b", slots=1), sold("c")
    running = [live(limited.pool), live(limited.pool), live(full.pool, 4), live(open_.pool)]
    assert [offer.slots for offer in subtract_occupied([limited, full, open_, sold("d", slots=5)], running)] == [
        1,
        0,
        None,
        5,
    ]


def test_parts_that_jobs_have_are_taken_off_what_is_free_of_a_shared_machine() -> None:
    """Of eight CPUs, and of the six that are left, one job has two and another has one."""
    shared = sold("own", engine="local", capacity=CapacityType.OWNED, slots=1, cpus=8, memory_gib=32)
    partly = replace(shared, left=MachineShare(6000, 16 * 1024))
    parts = [
        replace(live("elsewhere"), gpus=0, capacity=shared.capacity, milli_cpus=cpus * 1000, mib=1024)
        for cpus in (2, 1)
    ]
    found = subtract_occupied([shared, partly, sold("rented")], parts)
    assert [one.left for one in found] == [
        MachineShare(5000, 30 * 1024, (("H100", 8),)),
        MachineShare(3000, 14 * 1024),
        None,
    ]
    assert as_if_unoccupied(found) == [shared, shared, sold("rented")]


def test_only_a_denial_takes_a_single_place_out_of_a_plan() -> None:
    gate = GateByMachine({"a": Answer.DENY, "b": Answer.ASK})
    gate_: Any = gate
    deny = denials(gate_, Action(ActionKind.LAUNCH, JOB, "ann", hold={CASH: Money.usd(9)}), Facts(NOW))
    assert str(deny(at(sold("a")))) == "a: deny (team.yaml:4)"
    assert deny(at(sold("b"))) is deny(at(sold("c"))) is None
    assert [action.hold for action in gate.asked] == [None] * 3, "the amount is not known yet"


def test_a_reference_price_starts_nothing_unless_the_policies_say_so() -> None:
    def refused(offer: Offer | None, kind: ActionKind = ActionKind.LAUNCH, **defaults: Any) -> Verdict | None:
        gate: Any = GateByMachine(defaults=PolicyDefaults(**defaults))
        action = Action(kind, JOB, "ann", placement=None if offer is None else at(offer))
        return reference_price_denial(gate, action)

    listed = sold(reference=True)
    verdict = refused(listed)
    assert verdict is not None
    assert (verdict.answer, verdict.rule, verdict.name) == (
        Answer.DENY,
        "allow_reference_prices",
        "allow_reference_prices",
    )
    assert (verdict.code, verdict.source) == ("reference_price", Source("defaults", 0))
    assert verdict.figures == {"source": "test", "as_of": "2026-11-02"}
    assert refused(listed, ActionKind.RE_PLACE) is not None
    assert refused(listed, ActionKind.CONTINUE) is None
    assert refused(listed, allow_reference_prices=True) is None
    assert refused(sold()) is None
    assert refused(None) is None
