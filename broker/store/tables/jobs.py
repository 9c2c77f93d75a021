"""The tables of jobs: their projections, their events, the machine time of their attempts; the settings of a
store.
"""

from __future__ import annotations

from sqlalchemy import func, text

from broker.store.tables.plain import plain

# The end of machine time that continues: greater than any time in microseconds.
STILL_THERE = 2**62
JOB = plain("job")
EVENT = plain("attempt_event")
MACHINE_TIME = plain("machine_time")
# Exactly the condition of the index ``job_unclosed``. SQLite uses a partial index only for a query that repeats its
# condition without parameters; SQLAlchemy would render ``job.closed = 0``.
UNCLOSED = text("NOT job.closed")
# The condition that an outer join found an event. An expression, as databases turn the join into an inner one for a
# plain condition.
IS_THERE = func.coalesce(EVENT.c.body, "") != ""
SETTING = plain("setting")
