"""Damaged catalogue files: no crash, no price out of this world, and no harm to other rows. Seeded."""

import csv
import io
import random
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import Offer, OfferQuery
from providers.catalogue.file import CatalogueFile
from tests.contracts.provider_contract import NOW
from tests.fakes import catalogues
from tests.fakes.catalogues import table
from tests.fakes.mutate import HIGHEST, LOWEST, damaged_bytes

_ODD = (
    "", "NaN", "-1", "0", "1e9", "1e-9", "9" * 30, "free", "$", "EUR", "12.5.1", "x" * 5000, "x" * 200_000, "\0", '"',
    "\n", ",", "Infinity", "٣", "1,5", "\u202e", "True", "8.5", "1e400", "a/b@c", "../..", "'SizeInMiB': 1",
)  # fmt: skip
LAYOUTS = {
    "skypilot": (catalogues.SKYPILOT_COLUMNS, catalogues.SKYPILOT_ROWS, "aws"),
    "gpuhunt": (catalogues.GPUHUNT_COLUMNS, catalogues.GPUHUNT_ROWS, "azure"),
    "ours": (catalogues.OURS_COLUMNS, catalogues.OURS_ROWS, "acme"),
}


def damaged(text: str, chance: random.Random) -> tuple[bytes, int | None]:
    """The file with one cell or one line changed, or a few bytes; and which row was hit, None for any."""
    if chance.random() < 0.25:
        return damaged_bytes(text.encode(), chance), None
    header, *lines = list(csv.reader(io.StringIO(text)))
    hit = chance.randrange(len(lines))
    if chance.random() < 0.1:
        del lines[hit][chance.randrange(len(header)) :]
    else:
        lines[hit][chance.randrange(len(header))] = chance.choice(_ODD)
    return table(header, lines).encode(), hit


def parses(raw: bytes, wide: int) -> bool:
    try:
        lines = list(csv.reader(io.StringIO(raw.decode(), newline="")))
    except (UnicodeDecodeError, csv.Error):
        return False
    return bool(lines) and all(len(line) == wide for line in lines if line)


def check(folder: Path, layout: str, mutants: int, seed: int = 20261121) -> None:
    columns, lines, provider = LAYOUTS[layout]
    chance = random.Random(seed)
    file = folder / "mutant.csv"

    def offers(raw: bytes) -> set[Offer]:
        file.write_bytes(raw)
        found = CatalogueFile(file, provider=provider, dated=NOW, now=NOW).offers(OfferQuery())
        return {row for row in found if isinstance(row, Offer)}

    alone = [offers(table(columns, [line]).encode()) for line in lines]
    readable = 0
    for number in range(mutants):
        raw, hit = damaged(table(columns, lines), chance)
        readable += parses(raw, len(columns))
        where = f"mutant {number} of seed {seed}"
        try:
            found = offers(raw)
        except InvalidInput:
            assert hit is None, f"{where}: one odd row is no reason to give up"
            continue
        for offer in found:
            assert offer.price is not None, where
            assert LOWEST <= offer.price <= HIGHEST, f"{where}: {offer.id}: {offer.price}"
            assert offer.provider == provider, where
            assert (offer.accelerator is None) == (offer.count == 0), where
            assert offer.as_of <= NOW, where
        if hit is not None:
            others = {offer.id for n, own in enumerate(alone) if n != hit for offer in own}
            kept = {offer.id for offer in found}
            assert others <= kept, f"{where} loses {sorted(others - kept)[:3]}"
    assert 2 * readable >= mutants, f"only {readable} of {mutants} mutants are tables"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mutants", [30, pytest.param(150, marks=pytest.mark.system)])
def test_damaged_files_harm_nothing_but_the_damaged_row(tmp_path: Path, layout: str, mutants: int) -> None:
    check(tmp_path, layout, mutants)
