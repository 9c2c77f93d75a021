"""FOCUS exports before judges that others wrote: `focus-data-toolkit` for 1.4, and the specification's own
`focus-validator` for 1.2.

The latter needs Python 3.12 and much beside it, so it has an environment of its own: `make focus-judge` makes that, and
says where it is in ``GPUBROKER_FOCUS_VALIDATOR``. What it finds must be exactly `UNSATISFIABLE`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.app.billing.focus import export
from broker.app.wiring import Broker
from tests.focus_ledger import post_two_months
from tests.focus_quarter import MONTHS, post_quarter

OFFICIAL = os.environ.get("GPUBROKER_FOCUS_VALIDATOR", "")

UNSATISFIABLE = {
    # Invoices are the providers': the ledger has no number of any, and the rule demands one of every row.
    "InvoiceId-C-005-C",
    # No row names a capacity reservation, and the rule demands its status of every row all the same.
    "CapacityReservationStatus-C-004-C",
    "CapacityReservationStatus-C-002-C",
    "CapacityReservationStatus-C-000-C",
    # Demanded of every row without a commitment, where the same model says that it must be null.
    "CommitmentDiscountStatus-C-004-C",
    "CommitmentDiscountStatus-C-002-C",
    "CommitmentDiscountStatus-C-000-C",
    # What consists of those.
    "CostAndUsage-D-002-M",
    "CostAndUsage-D-000-M",
}


Export = Callable[[str, str, str], Path]


def exporter(broker: Broker, folder: Path) -> Export:
    def one(version: str, month: str, ending: str) -> Path:
        out = folder / f"{version}-{month}{ending}"
        export(broker, version, month, out)
        return out

    return one


@pytest.fixture
def exported(new_broker: Callable[[], Broker], tmp_path: Path) -> Export:
    broker = new_broker()
    post_two_months(broker.store)
    return exporter(broker, tmp_path)


@pytest.fixture
def quarter(new_broker: Callable[[], Broker], tmp_path: Path) -> Export:
    broker = new_broker()
    post_quarter(broker.store)
    return exporter(broker, tmp_path)


def judged(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from focus_data_toolkit.cli import main; raise SystemExit(main())", "validate"]
    return subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)


@pytest.mark.system
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("month", ["2026-09", "2026-10"])
def test_the_toolkit_finds_nothing(exported: Export, month: str, ending: str) -> None:
    found = judged(exported("1.4", month, ending))
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("month", [MONTHS[0], *(pytest.param(one, marks=pytest.mark.system) for one in MONTHS[1:])])
def test_the_toolkit_finds_nothing_in_a_simulated_quarter(quarter: Export, month: str) -> None:
    found = judged(quarter("1.4", month, ".csv"))
    assert found.returncode == 0, found.stdout


def test_the_toolkit_finds_a_planted_fault(exported: Export) -> None:
    """A list cost that is not price times quantity."""
    file = exported("1.4", "2026-09", ".csv")
    header, first, *rest = file.read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index("ListCost")] = "11.000000"
    file.write_text("\n".join([header, ",".join(cells), *rest]) + "\n")
    assert judged(file).returncode == 1


if OFFICIAL:  # without its environment there is nothing to run, which is no test that was skipped

    @pytest.mark.parametrize("ending", [".csv", ".parquet"])
    def test_the_official_validator_finds_what_no_data_can_satisfy_and_nothing_else(
        exported: Export, tmp_path: Path, ending: str
    ) -> None:
        assert _official_failures(exported("1.2", "2026-09", ending), tmp_path) == UNSATISFIABLE

    @pytest.mark.parametrize("month", MONTHS)
    def test_the_official_validator_finds_no_more_in_a_simulated_quarter(
        quarter: Export, tmp_path: Path, month: str
    ) -> None:
        assert _official_failures(quarter("1.2", month, ".parquet"), tmp_path) == UNSATISFIABLE

    def _official_failures(file: Path, tmp_path: Path) -> set[str]:
        (package,) = Path(OFFICIAL).parents[1].glob("lib/python*/site-packages/focus_validator")
        (tmp_path / "focus_validator").symlink_to(package)  # it looks for its tables below the working folder
        options = ("--validate-version", "1.2", "--block-download", "--focus-dataset", "CostAndUsage")
        more = ("--applicability-criteria", "ALL", "--show-violations")
        done = subprocess.run(
            [OFFICIAL, "--data-file", str(file), *options, *more],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        failures = set(re.findall(r"^- ([A-Za-z]+-[A-Z]-\d+-[A-Z]): violations", done.stdout, re.MULTILINE))
        assert "Total: " in done.stdout, done.stderr
        return failures
