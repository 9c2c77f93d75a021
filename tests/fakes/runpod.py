"""RunPod's GraphQL API: ``gpuTypes`` according to the schema, with only the fields that a query requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

_TOKEN = re.compile(r"[{}()\[\]:,$!=]|\.\.\.|\"[^\"]*\"|[\w.]+")


class LowestPrice(StrictBody):
    """The type of that name. Prices are per GPU and hour."""

    minimumBidPrice: Decimal | None = None
    uninterruptablePrice: Decimal | None = None
    minVcpu: int | None = None
    minMemory: int | None = None
    stockStatus: str | None = None
    availableGpuCounts: list[int] | None = None


class GpuType(StrictBody):
    """The type of that name, as far as it is about prices."""

    id: str
    displayName: str
    memoryInGb: int
    manufacturer: str = "Nvidia"
    maxGpuCount: int | None = None
    maxGpuCountSecureCloud: int | None = None
    maxGpuCountCommunityCloud: int | None = None
    secureCloud: bool | None = None
    communityCloud: bool | None = None
    securePrice: Decimal | None = None
    communityPrice: Decimal | None = None
    secureSpotPrice: Decimal | None = None
    communitySpotPrice: Decimal | None = None
    oneMonthPrice: Decimal | None = None
    threeMonthPrice: Decimal | None = None
    sixMonthPrice: Decimal | None = None
    # The result of lowestPrice for each cloud.
    in_secure: LowestPrice | None = None
    in_community: LowestPrice | None = None


class RunpodMarket:
    """Answers ``POST /graphql``.

    As at RunPod, a field that the schema lacks is an error of the whole query. ``gone``: fields that the schema used to
    have.
    """

    def __init__(self, *rows: GpuType, gone: tuple[str, ...] = ()) -> None:
        self.rows = list(rows)
        self.gone = gone

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if (request.method, request.path) != ("POST", "/graphql"):
            return HttpAnswer(404, {"message": "not found"})
        try:
            (selected,) = _parse(request.body["query"])
        except (KeyError, TypeError, ValueError) as error:
            return HttpAnswer(400, {"errors": [{"message": f"Syntax Error: {error}"}]})
        unknown = list(self._unknown(selected))
        if unknown:
            return HttpAnswer(400, {"errors": [{"message": message} for message in unknown]})
        return HttpAnswer(200, {"data": {"gpuTypes": [_select(row, selected[3]) for row in self.rows]}})

    def _unknown(self, selected: Selection) -> Iterator[str]:
        if selected[1] != "gpuTypes":
            yield f'Cannot query field "{selected[1]}" on type "Query".'
        for kind, fields, extra in (
            ("GpuType", selected[3], {"lowestPrice"}),
            ("LowestPrice", [inner for _, _, _, below in selected[3] for inner in below], set[str]()),
        ):
            known = {*(GpuType if kind == "GpuType" else LowestPrice).model_fields, *extra} - {*self.gone}
            yield from (
                f'Cannot query field "{name}" on type "{kind}".' for _, name, _, _ in fields if name not in known
            )


Selection = tuple[str, str, dict[str, str], list[Any]]


def _select(row: GpuType, fields: list[Selection]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for alias, field, arguments, inner in fields:
        if field == "lowestPrice":
            lowest = row.in_secure if arguments.get("secureCloud") == "true" else row.in_community
            found[alias] = {name: getattr(lowest, field, None) for name, field, _, _ in inner}
        else:
            found[alias] = getattr(row, field)
    return found


def _parse(query: str) -> list[Selection]:
    tokens = iter(_TOKEN.findall(query))
    for token in tokens:
        if token == "{":
            return _selection(tokens)
    raise ValueError("no selection")


def _selection(tokens: Iterator[str]) -> list[Selection]:
    """The fields up to the closing brace: (alias, field, arguments, inner fields)."""
    found: list[Selection] = []
    alias = ""
    for token in tokens:
        if token == "}":
            return found
        if token == ":":
            alias = found.pop()[0]
        elif token == "(":
            found[-1][2].update(_arguments(tokens))
        elif token == "{":
            found[-1][3].extend(_selection(tokens))
        elif token != ",":
            found.append((alias or token, token, {}, []))
            alias = ""
    raise ValueError("a brace is not closed")


def _arguments(tokens: Iterator[str]) -> dict[str, str]:
    words: list[str] = []
    for token in tokens:
        if token == ")":
            pairs = [word for word in words if word not in "{}:,"]
            return dict(zip(pairs[1::2], pairs[2::2], strict=True))
        words.append(token)
    raise ValueError("a parenthesis is not closed")
