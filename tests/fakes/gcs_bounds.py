"""Google's token service for downscoped tokens, and the permissions of a boundary, according to its documentation.

Supports the CEL that is documented for boundaries: conditions on the name of the object or the prefix of a list, joined
by ``||``. Everything else is refused. Google's library encodes the options twice.
"""

import json
import re
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.fakes.server import HttpAnswer, HttpRequest

_NAME = re.compile(r"resource\.name\.startsWith\('projects/_/buckets/([^/]+)/objects/([^']*)'\)")
_LIST = re.compile(r"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)\.startsWith\('([^']*)'\)")
_READ = {"GET", "HEAD", "LIST"}
_ROLES = {
    "inRole:roles/storage.objectAdmin": _READ | {"PUT", "POST", "DELETE"},
    "inRole:roles/storage.objectViewer": _READ,
}
_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_MOST_RULES = 10


class Boundary:
    """The permissions of a token. Raises ValueError for a boundary that the service would refuse."""

    def __init__(self, document: Any) -> None:
        rules = document["accessBoundary"]["accessBoundaryRules"]
        if set(document) != {"accessBoundary"} or not 0 < len(rules) <= _MOST_RULES:
            raise ValueError("one to ten rules")
        self._rules = [self._rule(rule) for rule in rules]

    @staticmethod
    def _rule(rule: Any) -> tuple[str, set[str], list[str], list[str]]:
        if set(rule) != {"availableResource", "availablePermissions", "availabilityCondition"}:
            raise ValueError(f"fields of a rule: {sorted(rule)}")
        bucket = rule["availableResource"].removeprefix("//storage.googleapis.com/projects/_/buckets/")
        names, lists = [], []
        for part in rule["availabilityCondition"]["expression"].split(" || "):
            if found := _NAME.fullmatch(part):
                if found[1] != bucket:
                    raise ValueError("another bucket")
                names.append(found[2])
            elif found := _LIST.fullmatch(part):
                lists.append(found[1])
            else:
                raise ValueError(f"no such condition: {part}")
        (role,) = rule["availablePermissions"]
        return bucket, _ROLES[role], names, lists

    def allows(self, bucket: str, method: str, name: str) -> bool:
        """Whether the request is permitted. ``method``: of HTTP, or ``LIST`` with a prefix as its ``name``."""
        return any(
            of == bucket and method in methods and any(map(name.startswith, lists if method == "LIST" else names))
            for of, methods, names, lists in self._rules
        )


class TokenService:
    """Answers like ``sts.googleapis.com``.

    ``logins``: tokens that may be exchanged; ``given``: boundaries by issued token.
    """

    def __init__(self, *logins: str) -> None:
        self.logins = set(logins)
        self.given: dict[str, Boundary] = {}

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        form = dict(parse_qsl(request.body if isinstance(request.body, str) else bytes(request.body or b"").decode()))
        expected = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": _TOKEN,
            "subject_token_type": _TOKEN,
        }
        if request.path != "/v1/token" or any(form.get(name) != value for name, value in expected.items()):
            return HttpAnswer(400, {"error": "invalid_request"})
        if form.get("subject_token") not in self.logins:
            return HttpAnswer(400, {"error": "invalid_grant", "error_description": "Invalid subject token"})
        try:
            boundary = Boundary(json.loads(unquote(form["options"])))
        except (KeyError, TypeError, ValueError) as error:
            return HttpAnswer(400, {"error": "invalid_request", "error_description": str(error)})
        token = f"narrowed-{len(self.given)}"
        self.given[token] = boundary
        return HttpAnswer(
            200, {"access_token": token, "issued_token_type": _TOKEN, "token_type": "Bearer", "expires_in": 3600}
        )
