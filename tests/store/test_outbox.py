"""Notices on their way: each key once to each target, and never lost."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.notices import Notice, Severity
from broker.store import Store, outbox

T = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOTICE = Notice("budget/nlp/80%", "80 % of nlp", "spent $80 of $100", Severity.WARNING)


def test_a_key_is_told_once_to_each_target(store: Store) -> None:
    assert store.outbox.add(NOTICE, ["ops", "mail"], T) == 2
    assert store.outbox.add(NOTICE, ["ops", "mail", "chat"], T + MINUTE) == 1
    told = []
    while dispatch := store.outbox.claim(["ops", "mail", "chat"], T + MINUTE, MINUTE):
        assert dispatch.notice == NOTICE
        told.append(dispatch.target)
        store.outbox.mark_delivered(dispatch, T + MINUTE)
    assert sorted(told) == ["chat", "mail", "ops"]
    assert store.outbox.add(NOTICE, ["ops"], T + 2 * MINUTE) == 0
    assert store.outbox.claim(["ops", "mail", "chat"], T + 9 * MINUTE, MINUTE) is None


def test_what_is_being_sent_is_nobody_elses_until_its_sender_is_gone(store: Store) -> None:
    store.outbox.add(NOTICE, ["ops"], T)
    first = store.outbox.claim(["ops"], T, 2 * MINUTE)
    assert first is not None
    assert store.outbox.claim(["ops"], T + MINUTE, MINUTE) is None
    again = store.outbox.claim(["ops"], T + 2 * MINUTE, MINUTE)
    assert again is not None
    assert (first.tries, again.tries) == (1, 2)


def test_what_failed_is_tried_again_when_it_is_due_or_given_up(store: Store) -> None:
    store.outbox.add(NOTICE, ["ops"], T)
    dispatch = store.outbox.claim(["ops"], T, MINUTE)
    assert dispatch is not None
    store.outbox.mark_failed(dispatch, "answered 503", T + 5 * MINUTE)
    assert store.outbox.claim(["ops"], T + 4 * MINUTE, MINUTE) is None
    (kept,) = store.outbox.under("budget/nlp")
    assert (kept.error, kept.next_try, kept.given_up) == ("answered 503", T + 5 * MINUTE, False)
    dispatch = store.outbox.claim(["ops"], T + 5 * MINUTE, MINUTE)
    assert dispatch is not None
    store.outbox.mark_failed(dispatch, "answered 503", None)
    (kept,) = store.outbox.under("budget/nlp")
    assert kept.given_up
    assert store.outbox.claim(["ops"], T + 99 * MINUTE, MINUTE) is None


def test_a_late_failure_does_not_undo_a_delivery(store: Store) -> None:
    store.outbox.add(NOTICE, ["ops"], T)
    first = store.outbox.claim(["ops"], T, MINUTE)
    second = store.outbox.claim(["ops"], T + MINUTE, MINUTE)
    assert first is not None
    assert second is not None
    store.outbox.mark_delivered(second, T + MINUTE)
    store.outbox.mark_failed(first, "timed out", T + 2 * MINUTE)
    assert store.outbox.claim(["ops"], T + 9 * MINUTE, MINUTE) is None


def test_only_for_targets_that_the_caller_can_reach(store: Store) -> None:
    store.outbox.add(NOTICE, ["gone"], T)
    assert store.outbox.claim(["ops"], T, MINUTE) is None
    assert store.outbox.claim([], T, MINUTE) is None
    (kept,) = store.outbox.under("")
    assert not kept.given_up


def test_keys_that_look_like_patterns_are_none(store: Store) -> None:
    for key in ("watch/a%/1", "watch/ab/1", "watch/a_/1"):
        store.outbox.add(Notice(key, "", ""), ["ops"], T)
    assert [dispatch.notice.key for dispatch in store.outbox.under("watch/a%/")] == ["watch/a%/1"]
    assert [dispatch.notice.key for dispatch in store.outbox.under("watch/a_/")] == ["watch/a_/1"]


def test_of_many_at_once_each_notice_is_claimed_by_one(store: Store) -> None:
    for n in range(20):
        store.outbox.add(Notice(f"k{n}", "", ""), ["ops"], T)

    def claim_all(_: int) -> list[str]:
        found = []
        while dispatch := store.outbox.claim(["ops"], T, MINUTE):
            found.append(dispatch.notice.key)
        return found

    with ThreadPoolExecutor(4) as pool:
        claimed = [key for keys in pool.map(claim_all, range(4)) for key in keys]
    assert sorted(claimed) == sorted(f"k{n}" for n in range(20))


def test_what_is_being_sent_is_not_tried_again_by_another(store: Store) -> None:
    store.outbox.add(NOTICE, ["ops"], T)
    dispatch = store.outbox.claim(["ops"], T, MINUTE)
    assert dispatch is not None
    store.outbox.mark_failed(dispatch, "answered 503", T + 5 * MINUTE)
    assert store.outbox.claim(["ops"], T + 5 * MINUTE, 2 * MINUTE) is not None
    assert store.outbox.retry(T + 6 * MINUTE, ["ops"]) == 0
    assert store.outbox.claim(["ops"], T + 6 * MINUTE, 2 * MINUTE) is None


def test_only_what_was_delivered_long_ago_is_deleted(store: Store) -> None:
    for n in range(3):
        store.outbox.add(Notice(f"k{n}", "", ""), ["ops", "gone"], T + n * MINUTE)
        dispatch = store.outbox.claim(["ops"], T + n * MINUTE, MINUTE)
        assert dispatch is not None
        store.outbox.mark_delivered(dispatch, T + n * MINUTE)
    assert store.outbox.prune(T + 2 * MINUTE) == 2
    left = {(one.notice.key, one.target) for one in store.outbox.newest(9, failed=False)}
    assert left == {("k0", "gone"), ("k1", "gone"), ("k2", "gone"), ("k2", "ops")}
    assert store.outbox.prune(T + 2 * MINUTE) == 0


def test_many_are_deleted_in_portions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_DELETE_BATCH", 2)
    for n in range(5):
        store.outbox.add(Notice(f"k{n}", "", ""), ["ops"], T)
        dispatch = store.outbox.claim(["ops"], T, MINUTE)
        assert dispatch is not None
        store.outbox.mark_delivered(dispatch, T)
    assert store.outbox.prune(T + MINUTE) == 5
    assert store.outbox.newest(9, failed=False) == []


def test_what_waits_for_a_target_that_is_gone_has_failed(store: Store) -> None:
    store.outbox.add(NOTICE, ["gone", "ops"], T)
    assert store.outbox.newest(9, failed=True) == []
    assert [one.target for one in store.outbox.newest(9, failed=True, targets=["ops"])] == ["gone"]
    assert len(store.outbox.newest(9, failed=True, targets=[])) == 2
