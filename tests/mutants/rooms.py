"""Which files are mutated, and which tests may kill their mutants."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

# Where money is reckoned, judged, held, settled and given back. A pattern that matches no file is an error.
ROOMS = (
    "broker/ledger/*.py",
    "broker/core/approvals.py",
    "broker/core/burns.py",
    "broker/core/coverage.py",
    "broker/core/facts.py",
    "broker/launch/admission.py",
    "broker/launch/approvals.py",
    "broker/launch/decide.py",
    "broker/launch/egress.py",
    "broker/launch/enforcement.py",
    "broker/launch/funds.py",
    "broker/launch/isolation.py",
    "broker/launch/leases.py",
    "broker/launch/placing.py",
    "broker/launch/rejudging.py",
    "broker/launch/removal.py",
    "broker/launch/settlement.py",
    "broker/launch/settling.py",
    "broker/launch/top_up.py",
    "broker/store/ledger.py",
    "broker/store/ledger_sums.py",
    "broker/store/metering.py",
    "broker/store/movement_sums.py",
)

# Tests of other folders hardly reach these files, or start processes, in which a mutant is not planted.
TESTS = (
    "tests/ledger", "tests/launch", "tests/app", "tests/store", "tests/core", "tests/policies/test_coverage.py",
    "tests/policies/test_asking.py",
)  # fmt: skip
# Some of these reach them too, only to replay months of a market.
LEFT_OUT = (
    "tests/core/jobfile",
    "tests/launch/agent",
    "tests/launch/test_advice.py",
    "tests/app/test_policies_backtest.py",
    "tests/app/test_strategy_backtest.py",
    "tests/store/test_market.py",
    "tests/store/test_market_history.py",
    "tests/store/test_market_retention.py",
    "tests/store/test_processes.py",
)


def modules() -> list[str]:
    """The files to mutate, as paths from the root of the repository. Raises ValueError for a pattern without a file."""
    found: list[str] = []
    for pattern in ROOMS:
        files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
        if not files:
            raise ValueError(f"{pattern}: there is no such file; correct ROOMS in {__file__}")
        found += files
    return found
