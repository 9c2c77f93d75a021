"""The exact conditions of partial indexes: both databases use such an index only for a query that repeats its
condition.
"""

from __future__ import annotations

from sqlalchemy import text

ENDED_BADLY = text("""kind = 'attempt_ended' AND body NOT LIKE '%"cause":"completed"%'""")
"""Most attempts complete. In JSON, a quotation mark within a text is escaped, so nothing else matches."""
REPORTED = text("kind = 'metrics_reported'")
ENDED = text("kind = 'job_ended'")
ABOUT_APPROVAL = text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")

# Entries over more than a day, added one by one: see `broker.store.ledger.spent_sums`.
LONG = text("account = 'spent' AND covers_to - covers_from > 86400000000")
# Spend on owned and reserved machines, and spend without an attempt: a small part of all spend.
ON_OWN = text("account = 'spent' AND capacity_type IN ('owned', 'reserved')")
WITHOUT_ATTEMPT = text("account = 'spent' AND attempt IS NULL")
