"""Launches requested together as an array: judged as a whole, with a hold for each as it begins."""

from dataclasses import dataclass, replace

from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.reconciler.admission.admission import Admission, strictest
from broker.reconciler.admission.facts import FactsFor


@dataclass(frozen=True, slots=True)
class OutsideArray:
    """``count`` identical launches, at most ``at_once`` of them at a time."""

    count: int
    at_once: int

    @property
    def turns(self) -> int:
        """The number of successive rounds, if all launches of a round end together."""
        return -(-self.count // self.at_once)


def judge_array(admission: Admission, array: OutsideArray, policy: PolicySet, facts_for: FactsFor) -> Admission:
    """The judgment of an array, from that of one of its launches: the machines of those that run at once, and the
    money of all, over the time of all rounds."""
    action, placement = admission.action, admission.placement
    whole = replace(
        action,
        placement=replace(placement, nodes=placement.nodes * array.at_once, rate=placement.rate * array.at_once),
        hold={kind: amount * array.count for kind, amount in admission.money.items()},
        burns={
            kind: Burn(
                burn.amount * array.count,
                burn.start,
                burn.start + (burn.end - burn.start) * array.turns,
                burn.rate * array.at_once,
            )
            for kind, burn in action.burns.items()
        },
    )
    verdicts = tuple(policy.judge(whole, facts_for(whole)))
    return replace(admission, answer=strictest(verdicts), action=whole, money=whole.hold or {}, verdicts=verdicts)
