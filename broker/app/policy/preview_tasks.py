"""Previews of policies that are computed beside the requests that ask for them, with their progress. Kept in this
process for an hour."""

import logging
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from broker.app.documents import Result
from broker.app.policy.policies import load_policy
from broker.app.policy.trial_documents import PREVIEW_STEPS, PolicyPreviewResult, preview
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, RetryLater, UnknownName

log = logging.getLogger(__name__)

_KEPT_FOR = timedelta(hours=1)
_MAX_RUNNING, _MAX_KEPT = 3, 50  # of this process


class PreviewTask(Result):
    """A preview and its progress. ``steps``: what is computed, in order; ``done``: how many of them are. ``result``:
    null until all are; ``problem``: why there will be none."""

    id: str
    steps: list[str]
    done: int
    problem: str
    result: PolicyPreviewResult | None


@dataclass(eq=False)
class RunningPreview:
    """A preview for one person. ``ended``: set once there is a result or a problem."""

    id: str
    person: str
    files: Mapping[str, str]
    begun: datetime
    done: int = 0
    problem: str = ""
    result: PolicyPreviewResult | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self, broker: Broker) -> None:
        def report(done: int) -> None:
            self.done = done

        try:
            self.result = preview(broker, self.files, report)
        except BrokerError as error:
            self.problem = f"{error}" + (f"; {error.hint}" if error.hint else "")
        except Exception:  # a thread has nobody above it that would say so
            log.exception("the preview %s failed", self.id)
            self.problem = "it failed; the log of the server says why"
        finally:
            self.ended.set()


class _Previews:
    """The previews of one broker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, RunningPreview] = {}

    def add(self, task: RunningPreview) -> None:
        """Raises `RetryLater` while too many run."""
        with self._lock:
            if sum(not other.ended.is_set() for other in self._tasks.values()) >= _MAX_RUNNING:
                raise RetryLater(f"{_MAX_RUNNING} previews of policies are being computed", hint="try it in a minute")
            kept = [other for other in self._tasks.values() if task.begun - other.begun < _KEPT_FOR][1 - _MAX_KEPT :]
            self._tasks = {other.id: other for other in [*kept, task]}

    def find(self, id: str, person: str) -> RunningPreview:
        with self._lock:
            task = self._tasks.get(id)
        if task is None or task.person != person:
            raise UnknownName("preview", id, ())
        return task


_of_brokers: WeakKeyDictionary[Broker, _Previews] = WeakKeyDictionary()
_making = threading.Lock()


def start_preview(broker: Broker, files: Mapping[str, str], person: str) -> RunningPreview:
    """Begin to compute the effects of these files. Raises `InvalidInput` for invalid ones, and `RetryLater`."""
    load_policy(broker, files)
    task = RunningPreview(secrets.token_hex(16), person, dict(files), broker.clock.now())
    _previews(broker).add(task)
    threading.Thread(target=task.run, args=(broker,), name="preview", daemon=True).start()
    return task


def find_preview(broker: Broker, id: str, person: str) -> RunningPreview:
    """The preview of this person. Raises `UnknownName`: it is over an hour old, of another process, or another
    person's."""
    return _previews(broker).find(id, person)


def preview_document(task: RunningPreview) -> PreviewTask:
    has_ended = task.ended.is_set()
    return PreviewTask(
        id=task.id,
        steps=list(PREVIEW_STEPS),
        done=task.done,
        problem=task.problem if has_ended else "",
        result=task.result if has_ended else None,
    )


def _previews(broker: Broker) -> _Previews:
    with _making:
        return _of_brokers.setdefault(broker, _Previews())
