"""Whether a service's duties do their work."""

from broker.app.service.health import DutyState, Pulses


class Stopwatch:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_duty_that_says_nothing_for_long_is_ill_and_well_again_when_it_speaks() -> None:
    clock = Stopwatch()
    pulses = Pulses(patience=60, monotonic=clock)
    pulses.begins("jobs")
    clock.now += 59
    assert pulses.ill() == {}
    clock.now += 2
    assert pulses.ill() == {"jobs": "silent for 61 s"}
    pulses.record_run("jobs", 0.25, steps=3)
    assert pulses.ill() == {}
    assert pulses.silent_for("jobs") == 0
    pulse = pulses.pulses()["jobs"]
    assert (pulse.standing, pulse.looks, pulse.steps, pulse.seconds) == (DutyState.LEADING, 1, 3, 0.25)


def test_standing_by_is_healthy_and_trouble_with_the_store_is_not() -> None:
    pulses = Pulses(monotonic=Stopwatch())
    pulses.stands_by("jobs")
    assert pulses.ill() == {}
    pulses.record_failure("jobs")
    assert pulses.ill() == {"jobs": "the store does not answer"}
    assert pulses.pulses()["jobs"].failures == 1
