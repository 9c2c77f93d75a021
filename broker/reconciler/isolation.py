"""Keeping what goes wrong with one step of one job away from its other steps and from other jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from broker.core.errors import BrokerError, StoreProblem
from broker.ledger.journal import NoLongerCurrent

log = logging.getLogger(__name__)


@contextmanager
def isolated(what: str) -> Iterator[None]:
    """Log what the enclosed step raises, and go on after it. ``what``: the step, as the log should name it.

    Lets `StoreProblem` through, as without the store no other step can work either, and `NoLongerCurrent`, as all that
    was to be done was decided by an earlier state of the job.
    """
    try:
        yield
    except (StoreProblem, NoLongerCurrent):
        raise
    except BrokerError as error:
        log.warning("%s: %s", what, error)
    except Exception:  # a defect in one step, ours or a plug-in's, must not keep the other steps from being taken
        log.exception("%s: left for the next look", what)
