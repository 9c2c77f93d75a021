"""What a plan says beside its figures: limits, checkpoints, what is not priced, what would do but for something."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.job.jobs import CheckpointPlan, Data, Work
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import keeping_rate
from broker.placement.pricing.run_model import daly_interval

Make = Any
HOUR = timedelta(hours=1)


class TestNotes:
    def notes(self, make: Make, offer: Offer, job: Any, **how: Any) -> str:
        plan = make.plan([offer], job, **how)
        return "\n".join([*plan.notes, *plan.remarks])

    def test_a_plain_plan_says_little(self, make: Make) -> None:
        here = replace(make.conditions, store_location="aws/us-east-1")
        assert make.plan([make.offer()], conditions=here).notes == ()

    def test_stopping_too_early(self, make: Make) -> None:
        assert "stopped after 3 h" in self.notes(make, make.offer(), make.job(max_duration=timedelta(hours=3)))

    def test_no_checkpoints_matter_where_a_machine_may_be_taken_back(self, make: Make) -> None:
        alone = make.job(checkpoint=CheckpointPlan())
        assert "checkpoint" not in self.notes(make, make.offer(), alone)
        assert "without checkpoints" in self.notes(make, make.spot(rate=0.2), alone)
        assert "resumes all the same" in self.notes(make, make.spot(rate=0.001), alone)
        rented = replace(make.spot(rate=0.001), capacity_type=CapacityType.ON_DEMAND)
        assert "resumes all the same" not in self.notes(make, rented, alone), "its machine may break, as any may"

    def test_interval_advice(self, make: Make) -> None:
        seldom = make.job(checkpoint=CheckpointPlan(every=timedelta(hours=4), size=10_000_000_000))
        said = self.notes(make, make.spot(rate=0.2), seldom)
        assert "warning: checkpoints every 4 h waste" in said
        assert "one interruption in 5 h expected" in said
        open_ = make.job(checkpoint=CheckpointPlan(restart=timedelta(minutes=1)))
        assert "the best checkpoint interval there is" in self.notes(make, make.spot(), open_)

    def test_money_that_will_not_do(self, make: Make) -> None:
        assert "paused at its `max_cost` of $50.00" in self.notes(
            make, make.offer(), make.job(max_cost=Money.usd("50"))
        )

    def test_how_a_job_with_a_deadline_begins(self, make: Make) -> None:
        """48 h of work, checkpoints every half hour: a changeover of 5 + 3 + 30 min and a minute to write."""

        def said(hours: float, *offers: Offer) -> str:
            job = make.job(work=Work(duration=timedelta(hours=10)), deadline=timedelta(hours=hours))
            return "\n".join(make.plan([make.spot("1"), *offers], job).notes)

        steady = make.offer("9", capacity_type=CapacityType.ON_DEMAND)
        assert "the job starts on " + steady.pool in said(11, steady)
        assert "placement is reviewed while the job runs" in said(20, steady)
        assert "placement is reviewed" not in said(20)
        assert "the job starts on" not in said(20)

    def test_what_is_not_in_the_figures(self, make: Make) -> None:
        assert "data.size" in self.notes(make, make.offer(), make.job(data=Data(location="gcp/us-east4")))
        unsized = make.job(checkpoint=CheckpointPlan(every=timedelta(minutes=30)))
        elsewhere = replace(make.conditions, store_location="gcp/us-east4")
        assert "checkpoint.size" in self.notes(make, make.offer(), unsized, conditions=elsewhere)
        assert "data.location" in self.notes(make, make.offer(), make.job(data=Data(size=10**12)))

    def test_moving_checkpoints_to_a_place_nobody_knows(self, make: Make) -> None:
        unpriced = "checkpoint transfer costs are not included: set GPUBROKER_RUNS_LOCATION=provider/region"
        assert unpriced in self.notes(make, make.spot(), make.job())
        assert "`checkpoint.size`" in self.notes(make, make.spot(), make.job(checkpoint=CheckpointPlan(every=HOUR)))
        known = replace(make.conditions, store_location="aws/us-east-1")
        assert unpriced not in self.notes(make, make.spot(), make.job(), conditions=known)
        assert unpriced not in self.notes(make, make.spot(), make.job(checkpoint=CheckpointPlan()))
        # Our own machines may share a disk, unless the store is one that is paid for; simulated ones always do.
        owned = make.offer("0", capacity_type=CapacityType.OWNED, money=MoneyKind.AMORTISED)
        assert unpriced not in self.notes(make, owned, make.job())
        in_a_cloud = replace(make.conditions, keeping=keeping_rate("aws/?"))
        assert unpriced in self.notes(make, owned, make.job(), conditions=in_a_cloud)
        simulated = replace(make.conditions, sandbox=True)
        assert unpriced not in self.notes(make, make.spot(money=MoneyKind.SANDBOX), make.job(), conditions=simulated)

    def test_a_deadline_rules_over_the_value_of_time(self, make: Make) -> None:
        both = make.job(deadline=50 * HOUR, value_of_time=Money.usd("4"))
        assert "the value of time is ignored" in self.notes(make, make.offer(), both)
        for one in ({"deadline": 50 * HOUR}, {"value_of_time": Money.usd("4")}):
            assert "the value of time is ignored" not in self.notes(make, make.offer(), make.job(**one))

    def test_offers_that_nothing_here_can_run(self, make: Make) -> None:
        noted = self.notes(make, make.offer(engine=None), make.job())
        assert "1 offer would match, but no installed engine runs jobs there" in noted


class TestIntervalAdvice:
    """Every plan for capacity that can be lost says how often to write a checkpoint."""

    def notes(self, make: Make, spot: float, **job: Any) -> str:
        plan = make.plan([make.spot("4", rate=spot)], make.job(**job))
        return "\n".join([*plan.notes, *plan.remarks])

    def test_its_own_interval_is_fine_or_not(self, make: Make) -> None:
        def every(minutes: float) -> CheckpointPlan:
            return CheckpointPlan(every=timedelta(minutes=minutes), size=10**12, restart=timedelta(minutes=1))

        # 1 TB at 500 MB/s takes 33 min; with one interruption in 4 h Daly's interval is about 1.8 h.
        assert "are fine there; the best interval is 1.7" in self.notes(make, 0.25, checkpoint=every(100))
        wasteful = self.notes(make, 0.25, checkpoint=every(20))
        assert "warning: checkpoints every 20 min waste" in wasteful
        assert "every 1.7" in wasteful

    @pytest.mark.parametrize("capacity", [CapacityType.SPOT, CapacityType.OWNED])
    @pytest.mark.parametrize("hours", [8, 12, None])
    def test_what_is_wasted_is_what_the_row_beside_it_shows(
        self, make: Make, capacity: CapacityType, hours: float | None
    ) -> None:
        """Where interruptions are frequent the formula to first order would have all of the time wasted, and more."""
        work = None if hours is None else Work(duration=hours * HOUR, accelerator="H100", count=8)
        seldom = make.job(checkpoint=CheckpointPlan(every=5 * HOUR, size=10**10), work=work)
        plan = make.plan([make.spot("4", rate=0.4, capacity_type=capacity)], seldom)
        (told,) = [note for note in plan.notes if "waste" in note]
        assert f"checkpoints every 5 h waste {1 - plan.best.useful_fraction:.0%} of the time there" in told
        advised = timedelta(hours=daly_interval(20 / 3600, 2.5))
        often = make.job(checkpoint=CheckpointPlan(every=advised, size=10**10), work=work)
        best = make.plan([make.spot("4", rate=0.4, capacity_type=capacity)], often).best
        assert f" min would waste {1 - best.useful_fraction:.0%} (one interruption in 2.5 h" in told

    def test_the_best_one_is_assumed_where_the_job_names_none(self, make: Make) -> None:
        told = self.notes(make, 0.25, checkpoint=CheckpointPlan(size=10**10))
        assert "the best checkpoint interval there is" in told
        assert "costs assume it" in told

    def test_none_at_all_costs_so_much(self, make: Make) -> None:
        work = Work(duration=timedelta(hours=5), accelerator="H100", count=8)
        told = self.notes(make, 0.25, checkpoint=CheckpointPlan(), work=work)
        assert "warning: without checkpoints" in told
        assert "one every 1" in told
        calm = self.notes(make, 0.001, checkpoint=CheckpointPlan(), work=work)
        assert "warning: without checkpoints" not in calm
