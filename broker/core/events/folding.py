"""Compact record of attempts that never had a machine, so that a view stays small.

Unavailable capacity may be requested a hundred times a day. A view keeps the newest such attempts in full and counts
the others, together with what the rules need of all: which pools refused, how often in a row, until when the job avoids
each (the pool's rest), and the number of failed launches in a row. The events record every attempt. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from broker.core.events.outcomes import AttemptState, Cause, Next
from broker.core.events.views import AttemptView, JobView, PoolRest

# Attempts without a machine kept in full.
MAX_EMPTY_ATTEMPTS = 8

# Rest of a pool after a failed launch: ten minutes, doubled each time, at most an hour.
_FIRST_REST, _LONGEST_REST = timedelta(minutes=10), timedelta(hours=1)
# Rest of a pool in whose queue the job waited as long as its deadline allowed.
_QUEUE_TOO_LONG = timedelta(hours=1)
# After this time without a failure the next one counts as the first. Failures before the last start are forgotten.
_FAILURE_MEMORY = 2 * _LONGEST_REST
_EVIDENCE_LENGTH = 160  # characters of the evidence that is kept for a pool

_PLACED_AGAIN = (Next.OTHER_OFFER, Next.RE_PLACE)
_FAILED_LAUNCHES = (Cause.LAUNCH_FAILED, Cause.MACHINE_LOST, Cause.AGENT_DIED, Cause.FENCED)
POOL_AVOIDED_AFTER = (Cause.NO_CAPACITY, Cause.LAUNCH_FAILED, Cause.LAUNCH_REFUSED)
"""If no agent reported, after these causes the job avoids the attempt's pool for a time, or permanently after a
refusal. It may be launched in another pool at once."""


def apply_attempt_end(view: JobView, attempt: AttemptView) -> JobView:
    """The view after the end of one of its attempts: updates the rest of its pool and the count of failed launches."""
    if attempt.claimed_at is not None or attempt.ended_at is None:
        return view
    if attempt.cause in _FAILED_LAUNCHES and not _is_first_without_machine(view, attempt):
        view = replace(view, failed_launches=view.failed_launches + 1)
    left_a_queue = attempt.cause is Cause.MOVED and attempt.queued_at is not None and attempt.up_since is None
    if not left_a_queue and attempt.cause not in POOL_AVOIDED_AFTER:
        return view
    pool, at = attempt.placement.offer.pool, attempt.ended_at
    recent_rests = rests_since_start(view)
    rests = {
        rest.pool: rest
        for rest in view.rests
        if rest.banned or rest in recent_rests or at - rest.since < _FAILURE_MEMORY
    }
    previous = rests.pop(pool, None)
    times = previous.times + 1 if previous is not None and at - previous.since < _FAILURE_MEMORY else 1
    length = _QUEUE_TOO_LONG if left_a_queue else min(_FIRST_REST * 2 ** min(times - 1, 16), _LONGEST_REST)
    banned = attempt.cause is Cause.LAUNCH_REFUSED
    rest = PoolRest(pool, times, at, at + length, attempt.number, attempt.evidence[:_EVIDENCE_LENGTH], banned)
    return replace(view, rests=(*rests.values(), rest))


def _is_first_without_machine(view: JobView, attempt: AttemptView) -> bool:
    """Whether it had no machine, in a pool where no launch of the job failed before. Such a failure is not counted,
    because the next pool may work."""
    failed_pools = {rest.pool for rest in view.rests}
    return attempt.handle is None and attempt.up_since is None and attempt.placement.offer.pool not in failed_pools


def rests_since_start(view: JobView) -> Sequence[PoolRest]:
    """The pools where a launch failed since an agent of the job last reported."""
    started = max((attempt.number for attempt in view.attempts if attempt.claimed_at is not None), default=0)
    return [rest for rest in view.rests if rest.attempt > started]


def apply_extension(view: JobView) -> JobView:
    """The view after a person granted more money or time: earlier failures no longer count."""
    return replace(view, failed_launches=0, rests=tuple(rest for rest in view.rests if not rest.banned))


def apply_claim(view: JobView, attempt: AttemptView) -> JobView:
    """The view after an agent reported: resets the count of failed launches and the rest of that pool."""
    rests = tuple(rest for rest in view.rests if rest.pool != attempt.placement.offer.pool)
    return replace(view, failed_launches=0, rests=rests)


def fold_empty_attempts(view: JobView) -> JobView:
    """The view with at most `MAX_EMPTY_ATTEMPTS` attempts that never had a machine. The latest attempt always stays."""
    empty_numbers = [attempt.number for attempt in view.attempts[:-1] if _is_without_effect(attempt)]
    if len(empty_numbers) <= MAX_EMPTY_ATTEMPTS:
        return view
    dropped = frozenset(empty_numbers[:-MAX_EMPTY_ATTEMPTS])
    attempts = tuple(attempt for attempt in view.attempts if attempt.number not in dropped)
    return replace(view, attempts=attempts, folded=view.folded + len(dropped))


def _is_without_effect(attempt: AttemptView) -> bool:
    """Whether it ended without a billed machine, and its only effect was another attempt."""
    if not attempt.over or attempt.claimed_at is not None or attempt.checkpoints:
        return False
    no_machine = attempt.up_since is None or attempt.refused
    return no_machine and attempt.state is not AttemptState.LOST and attempt.next in _PLACED_AGAIN
