"""Isolates failures: an error in one step of a job affects neither its other steps nor other jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from broker.core.errors import BrokerError, StoreProblem
from broker.ledger.journal import StaleJobView

log = logging.getLogger(__name__)


@contextmanager
def isolate_errors(step: str) -> Iterator[None]:
    """Log an exception of the enclosed step and continue after it. ``step``: the step's name in the log.

    Passes on `StoreProblem`, as no step works without the store, and `StaleJobView`, as the decision was based on an
    earlier state of the job.
    """
    try:
        yield
    except (StoreProblem, StaleJobView):
        raise
    except BrokerError as error:
        log.warning("%s: %s", step, error)
    except Exception:  # a bug in one step, of gpubroker or a plug-in, must not prevent the others
        log.exception("%s: left for the next tick", step)
