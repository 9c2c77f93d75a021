"""A provider behind a bad line: answers are lost after the order was taken, garbled, late, old, or the order arrives
twice."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakes.server import HttpAnswer, HttpRequest, Market

_LOST = HttpAnswer(500, {"error": {"code": 500, "message": "internal error"}})
_REFUSED = HttpAnswer(400, {"error": {"code": 400, "message": "no such machines for you"}})
_GARBLED = HttpAnswer(200, b"<html>bad gateway</html>")


@dataclass
class SpoiltLine:
    """``market``: the provider; ``is_order``, ``is_look``: whether a request places an order, or looks for one;
    ``nothing``: the answer of a provider that does not list it yet. ``sent``: how many orders arrived."""

    market: Market
    is_order: Callable[[HttpRequest], bool]
    is_look: Callable[[HttpRequest], bool]
    nothing: Callable[[HttpRequest], HttpAnswer]
    sent: int = 0
    lost: bool = False
    garbled: bool = False
    broken: bool = False
    refusal: bool = False
    twice: bool = False
    unlisted: int = 0
    old: bool = False
    _looked: dict[str, list[HttpAnswer]] = field(default_factory=dict)

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if self.is_order(request):
            return self._order(request)
        if not self.is_look(request):
            return self.market(request)
        if self.unlisted > 0:
            self.unlisted -= 1
            return self.nothing(request)
        found = self.market(request)
        answer = HttpAnswer(found.status, found.payload(), found.headers)  # as it is now
        seen = self._looked.setdefault(f"{request.path} {sorted(request.query.items())}", [])
        seen.append(answer)
        # Every second look gets what was true the time before.
        return seen[-2] if self.old and len(seen) % 2 == 0 else answer

    def _order(self, request: HttpRequest) -> HttpAnswer:
        self.sent += 1
        if self.broken or self.refusal:
            return _LOST if self.broken else _REFUSED
        answer = self.market(request)
        if self.twice:
            answer = self.market(request)
        if self.lost or self.garbled:
            answer = _LOST if self.lost else _GARBLED
            self.lost = self.garbled = False
        return answer
