"""Charts as files."""

import re
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.charts.picture import write_picture
from broker.core.errors import InvalidInput, MissingExtra

START = datetime(2026, 10, 22, tzinfo=UTC)
CHARTS = [
    Chart(
        "H100:8 <30 days> & $5 to $6",
        "time",
        "USD per GPU-hour",
        [
            Line(
                "aws <us-east-1>",
                [START, START + timedelta(days=1), START + timedelta(days=3)],
                [2.5, None, 3.25],
                True,
            ),
            Line("gcp", [START], [2.0]),
        ],
        note="Source: this store.",
    ),
    Chart("Spend", "team", "USD", bars=[Bars("cash", ["nlp", "cv"], [1200.0, None])]),
]
ONE = CHARTS[1:]  # where any picture will do


def test_a_page_stands_alone_and_says_everything(tmp_path: Path) -> None:
    path = tmp_path / "h100.html"
    write_picture(CHARTS, path)
    page = path.read_text()
    links = set(re.findall(r'(?:href|src)\s*=\s*"([^#"][^"]*)"', page)) | set(re.findall(r"url\((?!#)[^)]*\)", page))
    assert not links
    assert "@import" not in page
    assert "<script" not in page
    assert "<title>H100:8 &lt;30 days&gt; &amp; $5 to $6</title>" in page
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert '<th scope="row">2026-10-22 00:00</th><td>2.5</td><td>2</td>' in page
    assert '<th scope="row">2026-10-23 00:00</th><td>–</td><td></td>' in page
    assert '<th scope="row">nlp</th><td>1,200</td>' in page
    assert "Source: this store." in page
    drawings = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]
    assert len(drawings) == 2
    told = drawings[0].findtext("{http://www.w3.org/2000/svg}desc")
    assert told is not None
    assert "aws <us-east-1>: first 2.5, last 3.25" in told
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG\r\n"), ("a.svg", b"<?xml"), ("A.PNG", b"\x89PNG")])
def test_pictures_are_of_the_kind_that_their_name_says(tmp_path: Path, name: str, start: bytes) -> None:
    write_picture(ONE, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / name]


@pytest.mark.parametrize("name", ["a.html", "a.png", "a.svg"])
def test_a_chart_of_ours_is_written_anew_and_nothing_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_picture(ONE, path)
    write_picture(ONE, path)
    path.write_bytes(b"somebody's thesis")
    with pytest.raises(InvalidInput, match="exists") as refused:
        write_picture(ONE, path)
    assert "--force" in refused.value.hint
    assert path.read_bytes() == b"somebody's thesis"
    write_picture(ONE, path, replace=True)
    assert path.stat().st_size > 1000


def test_the_same_charts_give_the_same_bytes(tmp_path: Path) -> None:
    for suffix in ("html", "png", "svg"):
        write_picture(CHARTS[:1], tmp_path / f"a.{suffix}")
        write_picture(CHARTS[:1], tmp_path / f"b.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.jpg"])
def test_another_suffix_is_refused_with_those_there_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        write_picture(CHARTS, tmp_path / name)
    assert refused.value.hint == "name it a.html, a.png, a.svg"
    assert refused.value.exit_code == 2


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        write_picture(CHARTS, tmp_path / "no" / "a.png")
    (tmp_path / "b.png").mkdir()
    with pytest.raises(InvalidInput, match="is a folder"):
        write_picture(CHARTS, tmp_path / "b.png")


def test_nothing_is_left_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InvalidInput, match="No space left"):
        write_picture(CHARTS, tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra) as missing:
        write_picture(CHARTS, tmp_path / "a.png")
    assert missing.value.extra == "charts"


@pytest.mark.parametrize(
    "chart",
    [Chart("", "", ""), Chart("t", "x", "y", bars=[Bars("a", [], [])]), Chart("t", "x", "y", [Line("a", [1], [None])])],
)
def test_an_empty_chart_is_a_picture_too(tmp_path: Path, chart: Chart) -> None:
    for suffix in ("html", "png", "svg"):
        write_picture([chart], tmp_path / f"a.{suffix}")
    write_picture([], tmp_path / "none.html")
