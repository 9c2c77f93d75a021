"""Previews of policies that are computed beside the requests that ask for them, with their progress. Kept in this
process for an hour."""

import logging
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
    steps: tuple[str, ...] = PREVIEW_STEPS
    done: int = 0
    problem: str = ""
    result: PolicyPreviewResult | None = None


@dataclass(eq=False)
class RunningPreview:
    """A preview for one person. ``ended``: set once there is a result or a problem."""

    broker: Broker
    person: str
    files: Mapping[str, str]
    begun: datetime
    task: PreviewTask = field(default_factory=lambda: PreviewTask(id=secrets.token_hex(16)))
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            result = preview(self.broker, self.files, lambda done: self._change(done=done))
            self._change(result=result)
        except BrokerError as error:
            self._change(problem=f"{error}" + (f"; {error.hint}" if error.hint else ""))
        except Exception:  # a thread has nobody above it that would say so
            log.exception("the preview %s failed", self.task.id)
            self._change(problem="it failed; the log of the server says why")
        self.ended.set()

    def _change(self, **fields: object) -> None:
        self.task = self.task.model_copy(update=fields)


_lock = threading.Lock()
_previews: dict[str, RunningPreview] = {}


def start_preview(broker: Broker, files: Mapping[str, str], person: str) -> RunningPreview:
    """Begin to compute the effects of these files. Raises `InvalidInput` for invalid ones, and `RetryLater` while too
    many are computed."""
    load_policy(broker, files)
    new = RunningPreview(broker, person, dict(files), broker.clock.now())
    with _lock:
        if sum(not other.ended.is_set() for other in _previews.values()) >= _MAX_RUNNING:
            raise RetryLater(f"{_MAX_RUNNING} previews of policies are being computed", hint="try it in a minute")
        oldest = list(_previews)[: len(_previews) + 1 - _MAX_KEPT] if len(_previews) >= _MAX_KEPT else []
        for id in [id for id, other in _previews.items() if id in oldest or new.begun - other.begun > _KEPT_FOR]:
            del _previews[id]
        _previews[new.task.id] = new
    threading.Thread(target=new.run, name="preview", daemon=True).start()
    return new


def find_preview(broker: Broker, id: str, person: str) -> RunningPreview:
    """The preview of this person. Raises `UnknownName` if it is of another process or person, or no longer
    kept."""
    with _lock:
        begun = _previews.get(id)
    if begun is None or (begun.broker, begun.person) != (broker, person):
        raise UnknownName("preview", id, ())
    return begun
