"""`advise hardware`: every current accelerator has a dated price, or says why not; street prices have a date."""

import re
from typing import Any

import pytest


def answer(gpubroker: Any, *names: str, buy: bool = False) -> Any:
    gpus = [word for name in names for word in ("--gpu", name)]
    done = gpubroker("advise", "hardware", "--for", "bandwidth", *gpus, *(["--buy"] if buy else []), "--json")
    assert done.code == 0, done.err
    return done.json


def test_new_and_other_makers_cards_are_priced_with_source_and_date(gpubroker: Any) -> None:
    names = ("A10G", "Inferentia2", "Trainium", "MI300X", "B200", "B300", "GB200")
    for name in names:
        found = answer(gpubroker, name)
        assert [row["accelerator"] for row in found["ranking"]] == [name]
        assert re.search(rf"{name}: \S+, on-demand, pricebook: list price of 2026-\d\d-\d\d", str(found["assumptions"]))


@pytest.mark.parametrize("name", ["Trainium2", "GB300", "MI325X", "MI355X", "tpu-v5litepod", "tpu-v6e"])
def test_a_card_without_a_price_says_why_and_when(gpubroker: Any, name: str) -> None:
    found = answer(gpubroker, name, "H100")
    assert [row["accelerator"] for row in found["ranking"]] == ["H100"]
    (note,) = [text for text in found["assumptions"] if text.startswith(f"no price of {name}: ")]
    assert re.search(r"20\d\d", note), "with the date of what is known"


def test_street_prices_say_their_source_and_give_the_documents_table(gpubroker: Any) -> None:
    names = ("RTX3090", "RTX4090", "A10G", "A100", "A100-80GB", "H100", "L40S")
    found = answer(gpubroker, *names, buy=True)
    notes = str(found["assumptions"])
    assert "no price of A10G: Amazon's own card" in notes
    assert all(re.search(rf"'{name}: .*?20\d\d", notes) or f'"{name}: ' in notes for name in names if name != "A10G")
    values = {row["accelerator"]: row["per_kusd"] for row in found["ranking"]}
    assert values["RTX3090"] == pytest.approx(936 / 0.7, rel=0.001), "GB/s per $1,000 of a used card"
    assert list(values) == sorted(values, key=lambda name: -values[name])
