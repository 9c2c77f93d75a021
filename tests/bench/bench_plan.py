"""How long planning takes: 50,000 offers given as objects, one job. Run: python tests/bench/bench_plan.py [offers]

Three mixes: a whole market, of which few offers can serve the job; one in which all of them can; and a job that
nothing can serve. Figures are CPU seconds of this process, the best of three.
"""

import random
import sys
import time
from datetime import UTC, datetime, timedelta

from broker.core.job.jobs import CheckpointPlan, Data, Job, MachineRequest, Work
from broker.core.job.reasons import count_reasons
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CARDS = ("T4", "L4", "A10G", "V100", "A100", "A100-80GB", "H100", "H200", "L40S", None)
CONDITIONS = Conditions(engines={"skypilot": frozenset({"several_nodes", "setup", "workdir"})})
JOB = Job(
    name="bench",
    run="python train.py",
    resources=(MachineRequest(accelerator="H100", count=8),),
    work=Work(duration=timedelta(hours=48), accelerator="A100-80GB", count=8),
    deadline=timedelta(hours=60),
    checkpoint=CheckpointPlan(every=timedelta(minutes=10), size=14_000_000_000, restart=timedelta(minutes=6)),
    data=Data(location="aws/us-east-1", size=500_000_000_000),
)


def market(number: int, cards: tuple[str | None, ...] = CARDS, counts: tuple[int, ...] = (1, 2, 4, 8)) -> list[Offer]:
    chance = random.Random(1)
    offers = []
    for place in range(number):
        card = chance.choice(cards)
        count = chance.choice(counts) if card else 0
        region = f"us-{chance.choice(('east', 'west'))}-{chance.randint(1, 9)}"
        offers.append(
            Offer(
                provider=chance.choice(("aws", "gcp", "azure", "lambda", "runpod")),
                region=region,
                zone=f"{region}{chance.choice('abc')}",
                instance_type=f"type-{place}",
                accelerator=card,
                count=count,
                capacity_type=chance.choice((CapacityType.SPOT, CapacityType.ON_DEMAND)),
                price=Money(chance.randint(300_000, 90_000_000)),
                as_of=NOW - timedelta(minutes=chance.randint(0, 30)),
                source="bench",
                cpus=96.0,
                memory_gib=768.0,
                availability=chance.choice((Availability.AVAILABLE, Availability.UNKNOWN, Availability.UNAVAILABLE)),
                engine="skypilot",
                max_age=timedelta(hours=6),
            )
        )
    return offers


def measure(title: str, job: Job, offers: list[Offer]) -> None:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        plan = make_plan(job, offers, now=NOW, submitted_at=NOW, conditions=CONDITIONS)
        counts = count_reasons(plan.rejections)
        best = min(best, time.process_time() - started)
    print(
        f"{title:<34} {len(offers):>7,} offers  {len(plan.placements):>7,} ranked  "
        f"{len(counts)} reasons  {best:6.3f} s CPU"
    )


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    measure("a whole market", JOB, market(number))
    fits = [offer for offer in market(number * 3 // 2, ("H100",), (8,)) if offer.availability != "unavailable"]
    measure("every offer would do", JOB.model_copy(update={"deadline": None}), fits[:number])
    nothing = JOB.model_copy(update={"resources": (MachineRequest(accelerator="B200", count=8),)})
    measure("no offer will do", nothing, market(number))


if __name__ == "__main__":
    main()
