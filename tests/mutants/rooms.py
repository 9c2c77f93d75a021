"""Which files are mutated, and which tests may kill their mutants."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

# Where money is reckoned, judged, held, settled and given back. A pattern that matches no file is an error.
ROOMS = (
    "broker/ledger/*.py",
    "broker/core/policy/approvals.py",
    "broker/core/values/burns.py",
    "broker/core/policy/coverage.py",
    "broker/core/policy/facts.py",
    "broker/core/purchases/purchases.py",
    "broker/procurement/*.py",
    "broker/reconciler/admission/admission.py",
    "broker/reconciler/admission/approvals.py",
    "broker/reconciler/admission/facts.py",
    "broker/reconciler/admission/records.py",
    "broker/reconciler/decide.py",
    "broker/reconciler/settlement/settlement.py",
    "broker/reconciler/controllers/enforcement.py",
    "broker/reconciler/settlement/funds.py",
    "broker/reconciler/controllers/placement.py",
    "broker/reconciler/admission/launch_check.py",
    "broker/reconciler/settlement/batch.py",
    "broker/reconciler/controllers/top_up.py",
    "broker/store/ledger/ledger.py",
    "broker/store/ledger/spent_sums.py",
    "broker/store/ledger/metering.py",
    "broker/store/ledger/movement_sums.py",
)

# Tests of other folders hardly reach these files, or start processes, in which a mutant is not planted.
TESTS = (
    "tests/ledger", "tests/reconciler", "tests/app", "tests/store", "tests/core", "tests/policies/test_coverage.py",
    "tests/policies/test_coverage_of_any_action.py", "tests/policies/test_approval_config.py", "tests/procurement",
)  # fmt: skip
# Some of these reach them too, only to replay months of a market.
LEFT_OUT = (
    "tests/core/job/file",
    "tests/agent",
    "tests/reconciler/controllers/test_strategy_advice.py",
    "tests/app/policy/test_replay.py",
    "tests/store/market/test_market.py",
    "tests/store/market/test_market_history.py",
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
