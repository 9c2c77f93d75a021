"""What each command prints with --json is what `gpubroker schema` says of it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema_rs import meta

from broker.app.use_cases.catalogue import DOCUMENTS, JOB_FILE, NAMES, POLICY_FILE, schema_of
from tests.actors import ANN, OLGA
from tests.cli.conftest import Gpubroker
from tests.cli.documents import check, names_of
from tests.cli.test_program import ALL
from tests.fakes.catalogues import SKYPILOT_COLUMNS, SKYPILOT_ROWS, table

EXAMPLES = Path(__file__).parents[2] / "examples"

POLICY = """\
version: 1
policy: test
budgets: [{name: pretend, amount: $100, period: month, counts: [sandbox], alerts: [50%]}]
guardrails:
  - {name: big, approve_above: {cost: $2, approvers: [olga], expires: 6h}}
capacity: {order: [owned, spot, on_demand]}
"""

CASES = """\
policies: p.yaml
cases:
  - {name: small, expect: deny, offer: {accelerator: L4, price: $0.5}, job: {max_duration: 1h}}
"""
ELSEWHERE = {
    "autostart",  # needs systemd: tests/cli/service/test_autostart.py
    "capacity-list-check",  # this and the next six: tests/cli/capacity/test_buying.py
    "capacity-quote",
    "capacity-buy-preview",
    "capacity-purchase",
    "capacity-purchases",
    "capacity-purchase-history",
    "capacity-undo",
    "capacity-review",
    "capacity-proposal",
    "capacity-proof",  # tests/cli/capacity/test_capacity.py
    *(name for name in DOCUMENTS if name.startswith("advise-")),  # tests/cli/advise
    *("audit", "people-list", "person", "token", "tokens-create", "tokens-list"),  # tests/cli/access/test_access.py
    *("people-invite", "audit-verify"),  # likewise
    "prices-accept",  # tests/cli/prices/test_accept.py
    "demo",  # tests/demo/test_demo.py
    "setup",  # tests/cli/service/test_setup.py
    "serve",  # tests/market/test_two_pollers.py
    *("logout", "whoami", "whoami-local"),  # tests/server/client/test_login.py
    *("launches", "launches-end"),  # tests/cli/service/test_launches.py
    "notices-test",  # test_alerts_are_as_their_schema_says
}
Prints = Callable[..., Any]


class Printing:
    """Runs commands with --json; ``seen``: the documents that they printed, each as its schema says."""

    def __init__(self, gpubroker: Gpubroker) -> None:
        self._gpubroker = gpubroker
        self.seen: set[str] = set()

    def __call__(self, name: str, *command: str | Path, by: Any = ANN, code: int = 0) -> Any:
        done = self._gpubroker(*command, "--json", by=by)
        assert done.code == code, done.err or done.out
        check(name, done.json)
        self.seen.add(name)
        return done.json


def test_every_document_is_as_its_schema_says(
    gpubroker: Gpubroker, write: Callable[[str, str], Path], sandbox_job: Path, job: Path
) -> None:
    """The commands of a small company, one after the other; each document that has a schema is printed."""
    prints = Printing(gpubroker)
    assert prints("reconcile", "reconcile")["reconciled"], "there is no job yet, so it ends at once"
    _jobs_and_policies(gpubroker, write, sandbox_job, job, prints)
    _prices_and_service(write, prints)
    assert prints.seen | ELSEWHERE == set(DOCUMENTS), "every document was printed"


def _jobs_and_policies(
    gpubroker: Gpubroker, write: Callable[[str, str], Path], sandbox_job: Path, job: Path, prints: Prints
) -> None:
    policy = write("p.yaml", POLICY)
    assert prints("policy-show", "policy", "show") == {"active": None}
    prints("policy-check", "policy", "check", policy)
    prints("policy-apply", "policy", "apply", policy)
    prints("policy-show", "policy", "show", "--files")
    assert prints("policy-show-versions", "policy", "show", "--versions")["versions"]
    assert prints("offers", "offers", "-w", "provider=sandbox", "--spot")["offers"]
    assert prints("init", "init", write("mine.yaml", ""), "--defaults", "--force")["text"]
    prints("prices-status", "prices", "status")
    assert prints("plan", "plan", sandbox_job, code=6)["placements"]
    assert prints("plan", "plan", job)["hold_terms"] == []
    none = write("none.yaml", "name: none\nrun: x\nresources: {accelerators: 'H100:1'}\nmax_cost: $1\nwork: 90h\n")
    assert prints("plan", "plan", none, code=4)["reasons"]
    model = "name: m\nrun: x\nmodel: {parameters: 7B, method: qlora}\nconstraints: {providers: [sandbox]}\n"
    sized = gpubroker("plan", write("model.yaml", model), "--json").json
    check("plan", sized)
    assert sized["sizing"]["machines"]

    asked = prints("submit", "submit", sandbox_job, "--yes", code=6)
    assert asked["asked"]
    assert asked["wait_reason"]
    waiting = prints("approvals-list", "approvals", "list")
    assert waiting["requests"][0]["questions"]
    prints("submit", "approvals", "grant", asked["id"], by=OLGA)
    given = ("--for-user", "ann", "--total", "$50", "--until", "30d")
    prints("standing-grant", "approvals", "grant", *given, by=OLGA)
    second = prints("submit", "submit", sandbox_job, "--yes", "--detach")
    assert second["attempts"]
    assert second["budget_shares"]
    prints("standing-grant", "approvals", "revoke", "1", by=OLGA)
    prints("approvals-list", "approvals", "list", "--all", by=OLGA)
    assert prints("jobs-list", "jobs", "list")["jobs"]
    assert prints("status", "status", asked["id"])["events"]
    prints("status-attempts", "status", "--attempts", asked["id"])
    prints("logs", "logs", asked["id"])
    prints("jobs-files", "jobs", "files", asked["id"])
    prints("jobs-get", "jobs", "get", asked["id"])
    prints("jobs-files-checkpoints", "jobs", "files", asked["id"], "--checkpoints")
    prints("jobs-files-submitted", "jobs", "files", asked["id"], "--submitted")
    prints("jobs-diff", "jobs", "diff", asked["id"], asked["id"])
    prints("jobs-queue", "jobs", "queue")
    assert prints("plan-together", "plan", job, sandbox_job, code=6)["waiting"]
    prints("submit", "cancel", second["id"])
    prints("budget", "budget")
    assert prints("budget-details", "budget", "pretend")["held_by_job"]
    assert prints("report-spend", "report", "spend", "--by", "user", "--sandbox")["total"]
    assert prints("offers-risk", "offers", "-w", "provider=sandbox", "--risk")["offers"]
    assert prints("offers-groups", "offers", "--by", "gpu,capacity_type")["groups"]
    prints("jobs-prune", "jobs", "prune", "--dry-run")
    assert prints("policy-explain", "policy", "explain", sandbox_job)["inputs"]
    assert prints("prices-poll", "prices", "poll", "--provider", "sandbox")["polls"]
    owned = ("owned", "H100:8", "--site", "basement", "--price", "250000", "--from", "2026-01-15", "--life", "4y")
    prints("capacity-record", "capacity", "add", *owned)
    assert prints("capacity-list", "capacity", "list", "--offline")["recorded"]
    prints("capacity-record", "capacity", "remove", "1")
    prints("capacity-checklist", "capacity", "checklist", "crusoe")
    prints("error", "status", "nobody", code=2)
    prints("error", "plan", write("wrong.yaml", "rum: x\nnum_nodes: none\n"), code=2)
    cheap = POLICY + "  - {name: cheap, max_job_cost: $0.01}\n"
    assert prints(
        "policy-apply-preview", "policy", "apply", "--dry-run", write("p.yaml", POLICY.replace("$100", "$50"))
    )["budgets"]
    gpubroker("policy", "apply", "--yes", write("p.yaml", cheap.replace("capacity:", "#")))
    prints("submit-refused", "submit", sandbox_job, "--yes", code=3)
    assert prints("policy-decisions", "policy", "explain", asked["id"])["decisions"]
    tested = write("p.test.yaml", CASES)
    assert prints("policy-test", "policy", "test", tested)["cases"]
    prints("policy-findings", "policy", "findings")
    prints("report-billed", "report", "billed")
    prints("report-focus", "report", "focus", "--month", "2026-01", "--out", policy.with_name("focus.csv"))
    prints("report-showback", "report", "showback", "--month", f"{datetime.now(UTC):%Y-%m}")
    prints("report-showback-frozen", "report", "showback", "--month", "2026-01", "--freeze")
    assert prints("report-showback-list", "report", "showback", "--frozen")["statements"]
    assert prints("report-anomalies", "report", "anomalies")["incidents"] == []
    prints("report-units", "report", "units")
    prints("report-forecasts", "report", "forecasts")
    prints("report-review", "report", "review", "--month", f"{datetime.now(UTC):%Y-%m}")
    charges = write("charges.csv", "key,day,amount\nover-1,2026-01-01,26\n")
    assert prints("charges", "report", "charges", charges, "--provider", "pricebook")["unknown"]


def _prices_and_service(write: Callable[[str, str], Path], prints: Prints) -> None:
    assert prints("prices-history", "prices", "history", "-w", "provider=sandbox", "--last", "1h")["series"]
    vms = write("vms.csv", table(SKYPILOT_COLUMNS, SKYPILOT_ROWS))
    prints("prices-import", "prices", "import", vms, "--provider", "aws")
    prints("prices-prune", "prices", "prune", "--dry-run")
    prints("watch-add", "prices", "watch", "add", "below=$1", "--gpu", "L4", "--name", "cheap")
    assert prints("watch-list", "prices", "watch", "list", "--check")["watches"]
    assert prints("watch-list", "prices", "watch", "list")["watches"]
    prints("notices", "notices", "--failed")
    prints("notices-retry", "notices", "--retry")
    prints("watch-remove", "prices", "watch", "remove", "cheap")
    hourly = "".join(f"{4 + hour % 24 // 6}\n" for hour in range(24 * 20))
    demand = write("demand.csv", hourly)
    assert prints("capacity-plan", "capacity", "plan", "--demand", f"H100={demand}", "--on-demand-price", "2")["plans"]
    assert prints("doctor", "doctor", code=2)["findings"], "jobs wait, and no reconciler runs"
    prints("doctor-sweep", "doctor", "--sweep")
    kept = prints("store-backup", "store", "backup", "copy.db")["path"]
    prints("store-restore", "store", "restore", kept, "--yes")


def test_alerts_are_as_their_schema_says(gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", "json://127.0.0.1:9/none")
    done = gpubroker("notices", "--test", "--json")
    check("notices-test", done.json)
    assert [one["ok"] for one in done.json["deliveries"]] == [False]


def test_a_document_that_is_not_as_its_schema_says_is_found(gpubroker: Gpubroker) -> None:
    document = gpubroker("prices", "status", "--json").json
    with pytest.raises(AssertionError, match="scheduled"):
        check("prices-status", document | {"scheduled": "yes"})
    with pytest.raises(AssertionError, match="more"):
        check("prices-status", document | {"more": 1})


def test_what_a_command_prints_has_a_schema() -> None:
    """A model in `broker/app`, under the command's name in `DOCUMENTS`, or that of another command in
    `OF_OTHER_NAME`. Schemas are documents of their own."""
    without = [
        words for words, command in ALL if any("--json" in one.opts for one in command.params) and not names_of(words)
    ]
    assert set(without) == {("schema",)}, "name its document in use_cases/catalogue.py"


def test_schemas_are_printed_and_listed(gpubroker: Gpubroker) -> None:
    assert gpubroker("schema").out.split() == list(NAMES)
    assert gpubroker("schema", "--json").json == {"schemas": list(NAMES)}
    assert gpubroker("schema", "plan").json == json.loads(json.dumps(schema_of("plan")))
    assert all(meta.is_valid(json.loads(json.dumps(schema_of(name)))) for name in NAMES if name != POLICY_FILE)
    misspelt = gpubroker("schema", "offer")
    assert misspelt.code == 2
    assert "did you mean 'offers'" in misspelt.err


def jobs() -> list[Path]:
    texts = {path: list(yaml.safe_load_all(path.read_text())) for path in EXAMPLES.rglob("*.yaml")}
    found = [path for path, documents in texts.items() if len(documents) == 1 and "run" in (documents[0] or {})]
    assert found
    return found


@pytest.mark.parametrize("path", jobs(), ids=lambda path: path.name)
def test_example_jobs_are_as_the_schema_of_job_files_says(path: Path) -> None:
    check(JOB_FILE, yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "more",
    ["resources: {accelerators: {H100: 8}, cpus: 8+, memory: 64}", "resources: {accelerators: [H100:8, A100:8]}",
     "envs: {A: 1, B: x, C: true}", "secrets: [HF_TOKEN]", "secrets: {HF_TOKEN: }", "deadline: 2030-01-31T18:00Z"],
)  # fmt: skip
def test_all_forms_of_a_job_file_are_in_its_schema(more: str) -> None:
    check(JOB_FILE, yaml.load(f"run: x\n{more}\n", yaml.BaseLoader) if "deadline" in more else yaml.safe_load(
        f"run: x\n{more}\n"
    ))  # fmt: skip


@pytest.mark.parametrize("wrong", ["rum: x", "run: x\nnum_nodes: 0", "run: x\nsecrets: {HF_TOKEN: hush}"])
def test_what_no_job_file_may_say_is_not_in_its_schema(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(JOB_FILE, yaml.safe_load(wrong))
