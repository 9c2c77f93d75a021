"""Literally the conditions of partial indexes: both databases use one only for a query that repeats its condition."""

from __future__ import annotations

from sqlalchemy import text

ENDED_BADLY = text("""kind = 'attempt_ended' AND body NOT LIKE '%"cause":"completed"%'""")
"""Most attempts complete. Within a text of JSON no quotation mark stands alone, so nothing else matches."""
REPORTED = text("kind = 'metrics_reported'")
ENDED = text("kind = 'job_ended'")
ABOUT_APPROVAL = text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")

# Entries over more than a day, counted one by one: see `broker.store.ledger.spent_sums`.
LONG = text("account = 'spent' AND covers_to - covers_from > 86400000000")
# Spend on owned and reserved machines, and spend that no attempt caused: little of all that is spent.
ON_OWN = text("account = 'spent' AND capacity_type IN ('owned', 'reserved')")
WITHOUT_ATTEMPT = text("account = 'spent' AND attempt IS NULL")
