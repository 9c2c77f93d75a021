"""Damaged price lists and advice: no crash, no price out of this world, and no harm to other rows. Seeded."""

import copy
import csv
import io
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker.core.errors import BrokerError
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from providers.aws.provider import Aws
from providers.aws.settings import AwsSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.aws_files import (
    COLUMNS,
    FileAnswer,
    Files,
    advisor,
    price_list,
    serve_files,
)
from tests.fakes.mutate import (
    AdapterAnswer,
    DamagedBody,
    MutationTarget,
    answer_of,
    damaged_bytes,
)
from tests.providers.aws.conftest import market

Make = Callable[..., Aws]
SEED = 20261121
FEW, MANY = 20, 1000
_PATH = "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"
_ODD = ("", "NaN", "-1", "0", "1e9", "0.0000000001", "99999999999999", "Linux", "Shared", "x" * 5000, "\0", '"', "\n",
        ",", "Infinity", "٣", "1,5", "\u202e", "All Upfront", "Hrs", "Quantity", "5yr", "USD", "CNY")  # fmt: skip
LISTED = OfferQuery(capacity_types=(CapacityType.ON_DEMAND, CapacityType.RESERVED))


def damaged(lines: list[list[str]], chance: random.Random) -> tuple[bytes, str | None]:
    """The list with one cell, one line or a few bytes changed; and the SKU that was hit, or None for any."""
    rows = copy.deepcopy(lines)
    if chance.random() < 0.25:
        return damaged_bytes(written(rows), chance), None
    row = chance.choice(rows[6:])
    sku = row[0]
    match chance.randrange(6):
        case 0:
            rows.remove(row)
        case 1:
            del row[chance.randrange(len(row)) :]
        case _:
            row[chance.randrange(1, len(row))] = chance.choice(_ODD)
    return written(rows), sku


def written(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def parses(raw: bytes) -> bool:
    """Whether it is still a table as wide as its header."""
    rows = list(csv.reader(io.StringIO(raw.decode("utf-8", "replace").replace("\0", ""))))
    return bool(rows) and all(len(row) == len(COLUMNS) for row in rows[6:])


_SKUS = {"p5.48xlarge": "P548XLARGEUSEAST1", "g5.xlarge": "G5XLARGEUSEAST1"}


def list_target(make: Make, files: Files) -> MutationTarget:
    """The price list of a region: its rows are told apart by SKU."""
    lines = list(csv.reader(io.StringIO(price_list(market("us-east-1")))))
    provider = make()

    def damage(chance: random.Random) -> DamagedBody:
        raw, sku = damaged(lines, chance)
        row = None if sku is None else [line[0] for line in lines].index(sku)
        deleted = "" if rows_in(raw) == len(lines) else "a row is gone: "
        return DamagedBody(raw, row, f"{deleted}{changed(lines, raw)}", parses(raw))

    def ask(raw: bytes | None) -> AdapterAnswer:
        files.answers[_PATH] = FileAnswer(written(lines) if raw is None else raw)
        return answer_of(provider.offers(LISTED))

    groups: dict[str, set[Offer]] = {}
    for offer in ask(None).offers:
        groups.setdefault(_SKUS[offer.instance_type], set()).add(offer)
    return MutationTarget(
        damage,
        ask,
        {sku: frozenset(own) for sku, own in groups.items()},
        group=lambda row: lines[row][0],
        fair="^a row is gone",
        prices=r"(?i)PricePerUnit|a row is gone|Unit|LeaseContractLength",
    )


@contextmanager
def target() -> Iterator[MutationTarget]:
    """For `tests.market.test_damaged_answers`."""
    with serve_files() as files, pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(variable)
        for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(variable, os.devnull + "/none")
        url = files.url
        settings = AwsSettings(
            regions=("us-east-1",), attempts=1, timeout_seconds=60, price_list_url=url, spot_advisor_url=url
        )

        def made(**more: Any) -> Aws:
            return Aws(clock=ManualClock(NOW), settings=settings.model_copy(update=more))

        yield list_target(made, files)


def rows_in(raw: bytes) -> int:
    return len(list(csv.reader(io.StringIO(raw.decode("utf-8", "replace")))))


def changed(lines: list[list[str]], raw: bytes) -> list[str]:
    """The cells that are not as they were, for messages."""
    now = list(csv.reader(io.StringIO(raw.decode("utf-8", "replace"))))
    return [
        f"{COLUMNS[at] if at < len(COLUMNS) else at} = {new[at : at + 1]!r:.40}"
        for old, new in zip(lines, now, strict=False)
        for at in range(len(old))
        if old[at : at + 1] != new[at : at + 1]
    ][:3]


def ask(
    provider: Aws, query: OfferQuery, *, fatal: bool, where: str, skipped: list[SkippedRow] | None = None
) -> dict[str, Offer]:
    """The offers that arrive; ``skipped``: where to put the rows that do not. Where one row is damaged (``fatal``), an
    error of the whole is a fault."""
    offers: dict[str, Offer] = {}
    try:
        for row in provider.offers(query):
            if isinstance(row, Offer):
                assert row.id not in offers, where
                offers[row.id] = row
            else:
                assert row.reason, where
                if skipped is not None:
                    skipped.append(row)
    except BrokerError:
        assert not fatal, f"{where}: one odd row is no reason to give up"
    return offers


def check_advice(make: Make, files: Files, number: int) -> None:
    chance = random.Random(SEED)
    types = ("p5.48xlarge", "g5.xlarge", "g6.xlarge")
    data = advisor({"us-east-1": {name: (50, band) for band, name in enumerate(types)}})
    odd: tuple[Any, ...] = (None, True, -1, 99, 1e400, "2", "", [], {}, [1], 10**30, float("nan"), 0.5)
    provider = make()
    for mutant in range(number):
        changed = copy.deepcopy(data)
        hit = chance.choice(types)
        linux = changed["spot_advisor"]["us-east-1"]["Linux"]
        if chance.random() < 0.3:
            linux[hit] = chance.choice(odd)
        else:
            linux[hit][chance.choice("sr")] = chance.choice(odd)
        files.put_advisor(json.loads(json.dumps(changed)))
        offers = ask(provider, OfferQuery(capacity_types=(CapacityType.SPOT,)), fatal=True, where=f"mutant {mutant}")
        assert len(offers) >= 2
        for offer in offers.values():
            assert offer.interruption_rate is not None
            assert 0 < offer.interruption_rate < 1


def test_damaged_advice(make: Make, files: Files) -> None:
    check_advice(make, files, FEW)


@pytest.mark.system
def test_thousands_of_damaged_pieces_of_advice(make: Make, files: Files) -> None:
    check_advice(make, files, MANY)
