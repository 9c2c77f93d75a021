"""Whether and when orphans are ended: said by nobody, never; of several files the most patient holds."""

from datetime import timedelta

import pytest

from broker.core.errors import InvalidInput
from policies.loader import load


def files(*said: str) -> dict[str, str]:
    return {f"{number}.yaml": f"version: 1\npolicy: p{number}\ndefaults: {text}\n" for number, text in enumerate(said)}


@pytest.mark.parametrize(
    ("said", "after"),
    [
        ((), None),
        (("{max_duration: 1h}",), None),
        (("{end_orphans_after: 30m}",), timedelta(minutes=30)),
        (("{end_orphans_after: 30m}", "{max_duration: 1h}"), timedelta(minutes=30)),
        (("{end_orphans_after: 30m}", "{end_orphans_after: 2h}"), timedelta(hours=2)),
    ],
)
def test_the_most_patient_file_holds(said: tuple[str, ...], after: timedelta | None) -> None:
    assert load(files(*said)).defaults.end_orphans_after == after


def test_plans_keep_a_month_of_history() -> None:
    assert load(files("{keep_prices: 400d}", "{keep_prices: 90d}")).defaults.keep_prices == timedelta(days=400)
    with pytest.raises(InvalidInput) as refused:
        load(files("{keep_prices: 29d}"))
    assert "30d or more" in refused.value.problems[0].message


@pytest.mark.parametrize(
    ("section", "key", "instead"),
    [
        ("defaults: {keep_events: 400d}", "defaults.keep_events", "events of ended jobs stay in the database"),
        ("capacity: {lend: [{team: nlp, share: 40%}]}", "capacity.lend", "every team uses bought machines at no price"),
    ],
)
def test_a_removed_key_says_what_to_do_instead(section: str, key: str, instead: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load({"a.yaml": f"version: 1\npolicy: p\n{section}\n"})
    (problem,) = refused.value.problems
    assert (problem.line, problem.key) == (3, key)
    assert instead in problem.message
    assert problem.message.endswith("; delete this key")


def test_what_was_told_is_not_told_again_soon() -> None:
    said = load(files("{keep_notices: 100d}", "{keep_notices: 400d}")).defaults
    assert said.keep_notices == timedelta(days=400)
    with pytest.raises(InvalidInput) as refused:
        load(files("{keep_notices: 99d}"))
    assert "100d or more" in refused.value.problems[0].message


@pytest.mark.parametrize("text", ["30", "0s", "-1h", "soon", "true"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(files(f"{{end_orphans_after: {text}}}"))
    (problem,) = refused.value.problems
    assert "end_orphans_after" in problem.key


def test_of_several_files_the_longest_time_counts_before_files_are_deleted() -> None:
    said = load(files("{keep_results: 30d, keep_logs: 1d}", "{keep_results: 90d}", "{}")).defaults
    assert (said.keep_results, said.keep_logs, said.keep_checkpoints) == (timedelta(days=90), timedelta(days=1), None)
