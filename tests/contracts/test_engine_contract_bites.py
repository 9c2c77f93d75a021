"""Tests of the engine contract itself: each of these engines has one fault, and the named check finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from broker.core.market.machines import Machine
from broker.core.ports import EngineState, Launch, Observation
from broker.engines.detached import Slot
from broker.engines.local import Local
from tests.contracts import engine_contract
from tests.contracts.engine_bench import Bench
from tests.contracts.engine_contract import EngineContract
from tests.engines.test_local import local_bench
from tests.waiting import looks


class ListsNothing(Local):
    def machines(self) -> Iterator[Machine]:
        return iter(())


class ForgetsWhoAsked(Local):
    def machines(self) -> Iterator[Machine]:
        return (replace(one, store="") for one in super().machines())


class TrimsSecrets(Local):
    def submit(self, launch: Launch) -> str:
        return super().submit(replace(launch, secrets={name: value.strip() for name, value in launch.secrets.items()}))


class ForgetsKeys(Local):
    def find(self, key: str) -> str | None:
        return None


class FindsAnything(Local):
    def find(self, key: str) -> str | None:
        return key


class LaunchesAnew(Local):
    """Starts another machine for every call; only the claim in the run folder prevents the job from running twice."""

    calls = 0

    def submit(self, launch: Launch) -> str:
        LaunchesAnew.calls += 1
        return super().submit(replace(launch, key=f"{launch.key}-{LaunchesAnew.calls}"))


class LeavesStrangersOut(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        seen = super().observe(handles)
        return {handle: one for handle, one in seen.items() if one.state is not EngineState.LOST}


class CallsEverythingAnInterruption(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {
            handle: replace(one, interrupted=one.state is EngineState.GONE)
            for handle, one in super().observe(handles).items()
        }


class CallsNothingAnInterruption(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: replace(one, interrupted=False) for handle, one in super().observe(handles).items()}


class NeverSaysWhen(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: replace(one, gone_at=None) for handle, one in super().observe(handles).items()}


class BillsOnAndOn(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {
            handle: replace(one, gone_at=one.gone_at and self._clock.now())
            for handle, one in super().observe(handles).items()
        }


class BillsTheQueue(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {
            handle: replace(one, state=EngineState.QUEUED) if one.state is EngineState.UP else one
            for handle, one in super().observe(handles).items()
        }


class MovesTheStart(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {
            handle: replace(one, since=one.since and self._clock.now())
            for handle, one in super().observe(handles).items()
        }


class SpeaksLocalTime(Local):
    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {
            handle: replace(one, since=one.since and one.since.replace(tzinfo=None) + timedelta(hours=2))
            for handle, one in super().observe(handles).items()
        }


class OwnsEverything(Local):
    """Treats every handle as one of its own folder."""

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        own = super().observe([handle.rpartition(":")[2] for handle in handles])
        return dict(zip(handles, own.values(), strict=True))


class CancelsNothing(Local):
    def cancel(self, handle: str) -> None:
        return


class WaitsForTheEnd(Local):
    def cancel(self, handle: str) -> None:
        super().cancel(handle)
        for _ in looks("it is gone"):
            if self.observe([handle])[handle].state in (EngineState.GONE, EngineState.LOST):
                return


class ChokesOnStrangers(Local):
    def cancel(self, handle: str) -> None:
        if self.find(handle) is None:
            raise KeyError(handle)
        super().cancel(handle)


class SaysNothing(Local):
    def logs(self, handle: str) -> Iterator[str]:
        return iter(())


class WritesSecretsDown(Local):
    def submit(self, launch: Launch) -> str:
        handle = super().submit(launch)
        Slot(self._root / launch.key).write("launch.json", dict(launch.secrets))
        return handle


Check = Callable[[EngineContract, Bench], None]

LIES: list[tuple[type[Local], Check]] = [
    (BillsTheQueue, EngineContract.test_what_waits_costs_nothing_and_the_bill_starts_once),
    (MovesTheStart, EngineContract.test_what_waits_costs_nothing_and_the_bill_starts_once),
    (ForgetsKeys, EngineContract.test_a_job_runs_to_its_end),
    (FindsAnything, EngineContract.test_what_it_does_not_know_is_lost_and_harms_nobody),
    (LaunchesAnew, EngineContract.test_submitting_again_runs_nothing_again),
    (LaunchesAnew, EngineContract.test_submitting_at_the_same_time_runs_one),
    (LeavesStrangersOut, EngineContract.test_one_look_covers_every_handle),
    (CallsEverythingAnInterruption, EngineContract.test_a_failure_is_not_an_interruption),
    (CallsNothingAnInterruption, EngineContract.test_an_interruption_is_told_as_one),
    (NeverSaysWhen, EngineContract.test_a_job_runs_to_its_end),
    (BillsOnAndOn, EngineContract.test_a_job_runs_to_its_end),
    (SpeaksLocalTime, EngineContract.test_a_job_runs_to_its_end),
    (OwnsEverything, EngineContract.test_another_place_over_the_same_store_concludes_nothing),
    (CancelsNothing, EngineContract.test_what_is_cancelled_at_once_is_gone_at_once),
    (CancelsNothing, EngineContract.test_nothing_of_the_job_outlives_the_machine),
    (WaitsForTheEnd, EngineContract.test_cancel_returns_while_the_job_still_saves),
    (ChokesOnStrangers, EngineContract.test_what_it_does_not_know_is_lost_and_harms_nobody),
    (SaysNothing, EngineContract.test_a_job_runs_to_its_end),
    (WritesSecretsDown, EngineContract.test_secrets_reach_the_command_and_lie_nowhere),
    (ListsNothing, EngineContract.test_what_it_lists_is_what_runs_and_can_be_ended),
    (ForgetsWhoAsked, EngineContract.test_what_it_lists_is_what_runs_and_can_be_ended),
    (TrimsSecrets, EngineContract.test_values_and_commands_arrive_as_they_are_and_execute_nothing_else),
]


@pytest.mark.system
@pytest.mark.parametrize(("liar", "check"), LIES, ids=lambda part: part.__name__)
def test_a_liar_is_caught(liar: type[Local], check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_contract, "SECONDS", 2.0)
    bench = local_bench(tmp_path, liar)
    try:
        with pytest.raises((AssertionError, KeyError)):
            check(EngineContract(), bench)
    finally:
        honest = local_bench(tmp_path).engine
        for slot in (tmp_path / "home").glob("*"):
            honest.cancel(slot.name)
