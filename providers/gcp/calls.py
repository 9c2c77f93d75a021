"""Calls with Google's SDK: paging, retries, and conversion to the broker's errors.

Rows are protobuf messages (not proto-plus, which is slow in bulk): texts and numbers in them are of the type that the
API's schema says. The SDK parses an answer as a whole, so one field of a wrong type loses the page; such a page is then
parsed row by row (`providers.gcp.refusals`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.core.errors import Malformed, OutcomeUnknown, Unreachable
from broker.core.market.offers import SkippedRow
from broker.core.values.clock import Clock
from providers.gcp.login import GcpLogin
from providers.gcp.refusals import row_by_row, translate_errors, unreadable
from providers.gcp.settings import NAME
from providers.http import retrying

_MAX_PAGES = 2000


@dataclass(frozen=True, slots=True)
class ListMethod:
    """A listing method, by the SDK's names: the client, its method, its answer, and the key (as in JSON) of the rows.
    ``scoped``: they are grouped by zone or region.
    """

    client: str
    method: str
    answer: str
    rows: str
    scoped: bool = False


@dataclass(frozen=True, slots=True)
class ListedRow:
    """One row of a listing, and the zone or region in which it was listed, if it was in one."""

    row: Any
    place: str = ""


@dataclass(frozen=True, slots=True)
class GcpCaller:
    """Calls with one login, with the settings' timeout and attempts."""

    login: GcpLogin
    clock: Clock

    def call(self, client: str, method: str, where: str = "", /, **request: Any) -> Any:
        """One call, by the SDK's names; the answer as a protobuf message. ``where``: for messages.

        Raises `Throttled`, `Unreachable`, `LoginMissing`, `Refused` (`NotFound`, `NotPossible`), `Malformed` and
        `QuotaExceeded`, with what was asked for in them.
        """
        return self._call_with_retries(client, method, where, request, lambda answer: answer, None)

    def call_once(self, client: str, method: str, where: str = "", /, **request: Any) -> Any:
        """`call` for a request that must not take effect twice: it is sent once. Raises `OutcomeUnknown` if it may have
        taken effect, and the errors of `call` if it has not."""
        self.login.renew()
        try:
            return self._once(client, method, where, request, lambda answer: answer, None)
        except (Unreachable, Malformed) as error:
            raise OutcomeUnknown(error.message, where=error.where) from error

    def rows(self, listing: ListMethod, /, **request: Any) -> Iterator[ListedRow | SkippedRow]:
        """The rows of all pages, and those that cannot be read. Raises what `call` raises, possibly after some rows,
        and `Malformed` when a page's token comes again."""
        seen: set[str] = set()
        unread: list[SkippedRow] = []

        def reparse(body: bytes) -> Any:
            unread.clear()
            return row_by_row(body, listing.client, listing.answer, listing.rows, listing.scoped, unread)

        for _ in range(_MAX_PAGES):
            page = self._call_with_retries(
                listing.client, listing.method, "", request, lambda pager: next(iter(pager.pages)), reparse
            )
            yield from unread
            unread.clear()
            yield from _rows_of(page, listing)
            next_token = page.next_page_token
            if not next_token:
                return
            if next_token in seen:
                break
            seen.add(next_token)
            request["page_token"] = next_token
        raise Malformed("endless pages: a page token was repeated", where=_call_label(listing.client, listing.method))

    def _call_with_retries(
        self,
        client: str,
        method: str,
        where: str,
        request: dict[str, Any],
        unwrap: Callable[[Any], Any],
        reparse: Callable[[bytes], Any] | None,
    ) -> Any:
        def once() -> Any:
            self.login.renew()
            return self._once(client, method, where, request, unwrap, reparse)

        return retrying(self.login.settings, self.clock)(once)

    def _once(
        self,
        client: str,
        method: str,
        where: str,
        request: dict[str, Any],
        unwrap: Callable[[Any], Any],
        reparse: Callable[[bytes], Any] | None,
    ) -> Any:
        answers = self.login.answers
        answers.clear()
        with translate_errors(_call_label(client, method, where), answers, self.clock):
            try:
                timeout = self.login.settings.timeout_seconds
                function = getattr(self.login.client(client), method)
                answer = unwrap(function(request=request, retry=None, timeout=timeout))
                if not answers[0].content.lstrip().startswith(b"{"):  # protobuf takes a list for an empty answer
                    raise ValueError("not a JSON object")
                return type(answer).pb(answer)
            except unreadable():
                if reparse is None or not answers or answers[0].status_code >= 300:
                    raise
                return reparse(answers[0].content)


def resource_name(url: str) -> str:
    return url.rpartition("/")[2]


def utc(time: str) -> datetime | None:
    """A time of Compute Engine in UTC; None for a missing or invalid time."""
    try:
        parsed = datetime.fromisoformat(time)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def region_of(zone: str) -> str:
    """``us-central1`` of ``us-central1-a``."""
    return zone.rpartition("-")[0]


def _call_label(client: str, method: str, where: str = "") -> str:
    return f"{NAME}{'/' if where else ''}{where}: {client.removesuffix('Client')}.{method}"


def _rows_of(page: Any, listing: ListMethod) -> Iterator[ListedRow | SkippedRow]:
    if not listing.scoped:
        field = page.DESCRIPTOR.fields_by_camelcase_name[listing.rows].name
        for row in getattr(page, field):
            yield ListedRow(row)
        return
    for url in page.unreachables:
        yield SkippedRow("unreachable_place", f"{resource_name(url)}: Google could not query this scope")
    for scope, inner in page.items.items():
        field = inner.DESCRIPTOR.fields_by_camelcase_name[listing.rows].name
        if inner.warning.code == "UNREACHABLE":
            yield SkippedRow("unreachable_place", f"{resource_name(scope)}: Google could not query this scope")
        elif not inner.warning.code and not getattr(inner, field):  # Google warns of each place without results
            yield SkippedRow("malformed_row", f"{resource_name(scope)}: neither rows nor a warning that there are none")
        for row in getattr(inner, field):
            yield ListedRow(row, resource_name(scope))
