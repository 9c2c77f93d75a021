"""`gpubroker capacity quote`, `buy` and what follows, as people run them, with AWS behind the real provider."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from rich.console import Console

from broker.app.capacity.purchase_documents import PurchaseList
from broker.cli.capacity import capacity_view
from broker.cli.terminal import Terminal
from providers import registry
from tests.actors import ANN, BOB, OLGA, person
from tests.cli.conftest import Gpubroker
from tests.cli.documents import check

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud

DOCUMENTS = {
    "capacity-quote",
    "capacity-buy-preview",
    "capacity-purchase",
    "capacity-purchases",
    "capacity-purchase-history",
}
POLICY = """\
version: 1
policy: buying
budgets: [{name: capital, amount: $10000, period: month}]
guardrails:
  - {name: shop, purchases: {max_commitment: $9000, approvers: [bob, olga]}}
"""


@pytest.fixture
def cloud(
    aws_server: AwsCloud,
    home: Path,
    gpubroker: Gpubroker,
    write: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> AwsCloud:
    """AWS with one block for sale, a login to it, and a policy under which people may buy."""
    aws_server.clear()
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    login = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
    nowhere = {"AWS_CONFIG_FILE": "none", "AWS_SHARED_CREDENTIALS_FILE": "none", "AWS_ENDPOINT_URL": aws_server.url}
    for name, value in {**login, **nowhere}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(registry, "PROVIDERS", {**registry.PROVIDERS, "aws": "providers.aws.provider:Aws"})
    (home.parent / "gpubroker.toml").write_text('[providers.aws]\nregions = ["us-east-1"]\n', encoding="utf-8")
    starts = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    aws_server.blocks = [
        {
            "region": "us-east-1",
            "CapacityBlockOfferingId": "cb-1",
            "InstanceType": "p5.48xlarge",
            "AvailabilityZone": "us-east-1a",
            "InstanceCount": 2,
            "StartDate": starts,
            "EndDate": starts + timedelta(days=2),
            "CapacityBlockDurationHours": 48,
            "UpfrontFee": "4000",
            "CurrencyCode": "USD",
            "Tenancy": "default",
        }
    ]
    assert gpubroker("policy", "apply", write("policy.yaml", POLICY)).code == 0
    return aws_server


QUOTE = ("capacity", "quote", "H100:8", "--machines", "2", "--for", "2d")


def test_a_block_is_quoted_approved_bought_and_shown(gpubroker: Gpubroker, cloud: AwsCloud) -> None:
    seen: set[str] = set()

    def prints(name: str, *command: str, by: Any = ANN) -> Any:
        group = "approvals" if command[0] == "grant" else "capacity"
        done = gpubroker(group, *command, "--json", by=by)
        assert done.code == 0, done.err
        check(name, done.json)
        seen.add(name)
        return done.json

    [quote] = prints("capacity-quote", *QUOTE[1:])["quotes"]
    assert (quote["number"], quote["total_usd"], quote["machine_hour_usd"]) == (1, "4000.00", "41.666667")
    preview = prints("capacity-buy-preview", "buy", "1", "--dry-run")
    assert (preview["answer"], preview["approvals"], preview["held_usd"]) == ("ask", 2, "4000.00")
    assert prints("capacity-purchases", "purchases", "--all")["purchases"] == []

    asked = prints("capacity-purchase", "buy", "1", "--ceiling", "$4100")
    assert (asked["state"], asked["held_usd"], asked["approvers"]) == ("asking", "4100.00", ["bob", "olga"])
    prints("capacity-purchase", "grant", asked["id"], by=BOB)
    assert prints("capacity-purchase", "grant", asked["id"], by=OLGA)["state"] == "ordered"
    cloud.reservations["us-east-1"][0]["State"] = "scheduled"
    held = prints("capacity-purchase", "purchases", asked["id"], "--order")
    assert (held["state"], held["held_usd"], held["charged_usd"]) == ("held", "0.00", "4000.00")
    history = prints("capacity-purchase-history", "purchases", asked["id"])
    assert [step["kind"] for step in history["events"]][-1] == "order_paid"
    assert seen == DOCUMENTS
    assert "cr-" in gpubroker("capacity", "list", "--offline").out


def test_what_people_read(gpubroker: Gpubroker, cloud: AwsCloud) -> None:
    quoted = gpubroker(*QUOTE)
    assert "$4,000.00" in quoted.out
    assert "cannot be undone" in quoted.out
    seen = gpubroker("capacity", "buy", "1", "--dry-run").out
    assert "needs approval; 2 approvals needed" in seen
    asked = gpubroker("capacity", "buy", "1", by=ANN)
    assert "2 approvals missing, of bob or olga" in asked.out
    # $4,000 for 2 × 8 GPUs × 48 h are $5.208 a GPU-hour; the plan's rent of the same class, with its source
    for document in (seen, asked.out, gpubroker("capacity", "purchases", asked.out.split(":")[0], by=BOB).out):
        text = " ".join(document.split())
        rent = re.search(r"rent: \$([\d.]+) per GPU-hour of H100:\d \([^)]+, pricebook: list price of ", text)
        assert rent is not None, document
        assert f"break-even: in use for {5.2083 / float(rent[1]):.0%} of its hours ($5.208 / ${rent[1]}0" in text
        assert "regret without any use: $4,000.00" in text
    waiting = gpubroker("approvals", "list", "--mine", by=BOB)
    assert "ann asks to buy 2 × p5.48xlarge" in waiting.out
    assert "gpubroker approvals grant purchase-" in waiting.out
    assert gpubroker("approvals", "list", "--mine", "--json", by=ANN).json["purchases"] == [], "it is her own"
    assert len(gpubroker("approvals", "list", "--json", by=ANN).json["purchases"]) == 1
    listed = gpubroker("capacity", "purchases")
    assert "waits for approval" in listed.out
    found = PurchaseList.model_validate(gpubroker("capacity", "purchases", "--json").json)
    narrow = Console(width=80, file=StringIO(), record=True)
    narrow.print(*capacity_view.purchase_list_lines(narrow, found, shows_all=False))
    assert found.purchases[0].id in narrow.export_text(), "people copy it from a narrow terminal, too"
    id = next(word for word in listed.out.split() if word.startswith("purchase-"))
    assert gpubroker("approvals", "grant", id, by=ANN).code == 3
    assert gpubroker("approvals", "grant", id, by=OLGA).code == 0
    assert "approved by olga; 1 approval missing, of bob" in " ".join(
        gpubroker("approvals", "list", by=ANN).out.split()
    )
    gone = gpubroker("approvals", "refuse", id, "--reason", "spot is enough", by=BOB)
    assert "not bought: rejected" in gone.out
    shown = gpubroker("capacity", "purchases", id)
    assert "purchase failed by bob" in shown.out
    rejected = PurchaseList.model_validate(gpubroker("capacity", "purchases", "--all", "--json").json)
    paid = found.purchases[0].model_copy(update={"charged_usd": found.purchases[0].held_usd})
    both = PurchaseList(purchases=[paid, *rejected.purchases])
    narrow.print(*capacity_view.purchase_list_lines(narrow, both, shows_all=True))
    assert id in narrow.export_text(), "also beside a longer state"


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("buy", "7"), 2, "quote"),
        (("buy", "1", "--ceiling", "$1"), 2, "above the ceiling of $1"),
        (("quote", "H100:8", "--for", "36h"), 2, "1 to 14 days"),
        (("quote", "H1000:8"), 2, "H1000"),
        (("quote", "H100:8", "--provider", "sandbox"), 2, "sells no capacity"),
        (("purchases", "purchase-none"), 2, "purchase-none"),
        (("undo", "purchase-none"), 2, "purchase-none"),
    ],
)
def test_what_cannot_be_done_says_why(
    gpubroker: Gpubroker, cloud: AwsCloud, command: tuple[str, ...], code: int, says: str
) -> None:
    assert gpubroker(*QUOTE).code == 0
    done = gpubroker("capacity", *command)
    assert (done.code, says in done.err) == (code, True), done.err


def test_without_a_login_the_approver_orders_nothing_and_says_who_will(
    gpubroker: Gpubroker, cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpubroker(*QUOTE)
    asked = gpubroker("capacity", "buy", "1", "--json", by=ANN).json
    gpubroker("approvals", "grant", asked["id"], by=BOB)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    done = gpubroker("approvals", "grant", asked["id"], by=OLGA)
    assert done.code == 0
    assert "approved, not ordered yet" in done.out
    assert "gpubroker serve" in done.err


def test_where_no_provider_answers_nothing_is_said_to_be_for_sale(
    gpubroker: Gpubroker, cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    done = gpubroker(*QUOTE)
    assert (done.code, "no login to AWS" in done.err, "hint:" in done.err, done.out) == (5, True, True, "")
    unknown = gpubroker(*QUOTE, "--provider", "nosuch")
    assert (unknown.code, "unknown provider 'nosuch'" in unknown.err) == (2, True)
    nobody = gpubroker("capacity", "list", "--check")
    assert (nobody.code, "No provider answered" in nobody.out) == (5, True)


def test_what_aws_lists_is_compared_with_what_was_bought(cloud: AwsCloud, gpubroker: Gpubroker) -> None:
    assert "0 differences; aws lists 0 reservations and commitments" in gpubroker("capacity", "list", "--check").out
    row = {"CapacityReservationId": "cr-1", "InstanceType": "p5.48xlarge", "InstancePlatform": "Linux/UNIX"}
    more = {"AvailabilityZone": "us-east-1a", "TotalInstanceCount": 1, "State": "active"}
    cloud.reservations["us-east-1"] = [{**row, **more}]
    done = gpubroker("capacity", "list", "--check")
    assert done.code == 2
    assert "aws/us-east-1  cr-1  not recorded" in done.out
    document = gpubroker("capacity", "list", "--check", "--json")
    assert document.code == 2
    check("capacity-list-check", document.json)
    assert [one["order"] for one in document.json["differences"]] == ["cr-1"]


@pytest.mark.parametrize("option", ["--since", "--from", "--until", "--to"])
def test_a_start_lies_ahead(gpubroker: Gpubroker, option: str) -> None:
    done = gpubroker("capacity", "quote", "H100:8", option, "soon")
    assert done.code == 2
    assert "a duration from now, such as 30d" in done.err


def price_of_review(
    gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch, review: tuple[str, ...], days: int
) -> str | None:
    """What the review says that the same use would have cost on demand, by a list price of that age."""
    today = datetime.now(UTC).date()
    book = Path("book.toml").absolute()
    page = {"provider": "aws", "source": "EC2", "url": "https://aws.amazon.com/ec2/pricing/on-demand/",
            "date": f"{today - timedelta(days=days)}", "region": "us-east-1", "engine": "skypilot"}  # fmt: skip
    lines = ["[[pages]]", *(f'{name} = "{value}"' for name, value in page.items())]
    machine = 'type = "p5.48xlarge", gpu = "H100", n = 8, link = "nvlink", on_demand = "55.04"'
    book.write_text("\n".join([*lines, f"machines = [ {{ {machine} }} ]\n"]), encoding="utf-8")
    monkeypatch.setenv("GPUBROKER_PROVIDERS__PRICEBOOK__FILE", str(book))
    assert gpubroker("prices", "poll", "--provider", "pricebook").code == 0
    price: str | None = gpubroker(*review, "--json").json["on_demand_usd"]
    return price


def test_a_reservation_is_quoted_bought_and_cancelled(
    gpubroker: Gpubroker, cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fakes.aws_cloud import get_products
    from tests.fakes.aws_files import on_demand, product

    machine = product("p5.48xlarge", "us-east-1")
    cloud.products = get_products([(machine, [on_demand(machine, "10")])])
    command = ("quote", "p5.48xlarge", "--product", "capacity-reservation", "--for", "3d", "--region", "us-east-1")
    quoted = gpubroker("capacity", *command, "--json")
    check("capacity-quote", quoted.json)
    [quote, *_] = quoted.json["quotes"]
    assert (quote["total_usd"], quote["upfront_usd"], quote["undo"], quote["at_once"]) == (
        "720.00", "0.00", "any_time", True,
    )  # fmt: skip
    assert "can be cancelled at any time" in gpubroker("capacity", *command).out
    asked = gpubroker("capacity", "buy", str(quote["number"]), "--json", by=ANN).json
    bought = gpubroker("approvals", "grant", asked["id"], "--json", by=BOB).json
    assert (bought["state"], bought["held_usd"], bought["charged_usd"]) == ("held", "720.00", "0.00")
    review = ("capacity", "review", asked["id"], "--on-demand-price", "10")
    check("capacity-review", gpubroker(*review, "--json").json)
    reviewed = gpubroker(*review).out
    assert "used 0.0 of " in reviewed
    assert "against on demand, where the same use would have cost $0.00: " in reviewed
    assert "spot: no price is known; give it with --spot-price" in reviewed
    assert price_of_review(gpubroker, monkeypatch, review[:3], days=10) == "0.00", "no use, at $6.88"
    assert price_of_review(gpubroker, monkeypatch, review[:3], days=181) is None, "an old price is none"
    terms = gpubroker("capacity", "undo", asked["id"], "--dry-run", "--json")
    check("capacity-undo", terms.json)
    assert (terms.json["way"], terms.json["charge_usd"]) == ("cancel", "0.00")
    assert "charges $0.00 for it" in gpubroker("capacity", "undo", asked["id"], "--dry-run").out
    assert gpubroker("capacity", "undo", asked["id"], "--yes", by=person("carl")).code == 3
    unasked = gpubroker("capacity", "undo", asked["id"], by=ANN)
    assert (unasked.code, "no terminal for the confirmation" in unasked.err) == (2, True)
    assert "unknown purchase 'nix'" in gpubroker("capacity", "undo", "nix").err, "a wrong name is said first"
    with monkeypatch.context() as declining:
        declining.setattr(Terminal, "asks", property(lambda terminal: True))
        declining.setattr(typer, "confirm", lambda *_, **__: False)
        kept = gpubroker("capacity", "undo", asked["id"], by=ANN)
    assert (kept.code, "charges $0.00 for it" in kept.out, "Nothing was undone." in kept.err) == (1, True, True)
    gone = gpubroker("capacity", "undo", asked["id"], "--yes", "--json", by=ANN)
    check("capacity-purchase", gone.json)
    assert (gone.json["state"], gone.json["held_usd"], gone.json["undone_by"]) == ("undone", "0.00", "ann")
    again = gpubroker("capacity", "undo", asked["id"], "--yes", by=ANN)
    assert (again.code, "cannot be undone: its state is undone" in again.err) == (3, True)
    assert "undone by ann" in gpubroker("capacity", "purchases", asked["id"]).out.lower()


def test_a_kind_that_needs_more_says_what(gpubroker: Gpubroker, cloud: AwsCloud) -> None:
    for product, says in (
        ("savings-plan", "1 or 3 years"),
        ("future-reservation", "5 to 120 days ahead"),
    ):
        done = gpubroker("capacity", "quote", "H100:8", "--for", "2d", "--product", product)
        assert (done.code, says in done.err) == (2, True), done.err


PROPOSE = ("propose", "H100:8", "--machines", "2", "--for", "2d", "--region", "us-east-1", "--provider", "aws")


def test_what_was_proposed_is_bought_once(
    gpubroker: Gpubroker, cloud: AwsCloud, write: Callable[[str, str], Path]
) -> None:
    demand = write("hours.csv", "\n".join(["16"] * 300 + ["0"] * 100) + "\n")
    known = ("--demand", f"H100={demand}", "--on-demand-price", "12", "--spot-price", "4")
    proposed = gpubroker("capacity", *PROPOSE, *known, "--json")
    assert proposed.code == 0, proposed.err
    check("capacity-proposal", proposed.json)
    [line] = proposed.json["lines"]
    # $4,000 for 768 GPU-hours; 300 of 400 hours used 16 GPUs, which would cost $12 each on demand and $4 on spot
    assert (line["use"], round(line["usd_per_gpu_hour"], 4), round(line["break_even"], 3)) == (0.75, 5.2083, 0.434)
    assert (line["saves_usd"], line["saves_spot_usd"], line["regret_usd"]) == ("2912.00", "-1696.00", "4000.00")
    assert (line["regret_at_half_usd"], proposed.json["best"]) == ("544.00", 1)
    told = " ".join(gpubroker("capacity", *PROPOSE, *known).out.split())
    assert "43%" in told
    assert "needed: GPUs 9 to 16 (one machine) in 75% of the hours" in told
    assert "H100: rent: $12.00 per GPU-hour, as stated" in told

    file = write("proposal.json", proposed.out)
    first = gpubroker("capacity", "buy", "--from-plan", file, "--json", by=ANN)
    check("capacity-purchases", first.json)
    [asked] = first.json["purchases"]
    assert (asked["state"], asked["ceiling_usd"], asked["quote"]["undo"]) == ("asking", "4000.00", "none")
    [again] = gpubroker("capacity", "buy", "--from-plan", file, "--json", by=ANN).json["purchases"]
    assert again["id"] == asked["id"]
    assert len(gpubroker("capacity", "purchases", "--json").json["purchases"]) == 1

    for text, says in (
        (proposed.out.replace('"machines": 2', '"machines": 4'), "the lines of the proposal were changed"),
        ("{}", "the file is not a proposal"),
    ):
        refused = gpubroker("capacity", "buy", "--from-plan", write("changed.json", text), by=ANN)
        assert (refused.code, says in refused.err) == (2, True), refused.err
    assert gpubroker("capacity", "buy", "--from-plan", file, "--line", "7", by=ANN).code == 2
    assert gpubroker("capacity", "buy", by=ANN).code == 2


def test_a_proposal_that_became_dearer_is_not_bought(
    gpubroker: Gpubroker, cloud: AwsCloud, write: Callable[[str, str], Path]
) -> None:
    demand = write("hours.csv", "16\n" * 400)
    known = ("--demand", f"H100={demand}", "--on-demand-price", "12", "--json")
    file = write("proposal.json", gpubroker("capacity", *PROPOSE, *known).out)
    cloud.blocks[0]["UpfrontFee"] = "4000.01"
    dearer = gpubroker("capacity", "buy", "--from-plan", file, by=ANN)
    assert (dearer.code, "make a new proposal" in dearer.err) == (2, True), dearer.err
    cloud.blocks.clear()
    gone = gpubroker("capacity", "buy", "--from-plan", file, by=ANN)
    assert (gone.code, "does not offer line 1 any more" in gone.err) == (2, True), gone.err


def _quoted(gpubroker: Gpubroker) -> str:
    return str(gpubroker(*QUOTE, "--json").json["quotes"][0]["number"])
