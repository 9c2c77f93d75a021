"""Names that conditions compare with are known ones, or told."""

from typing import Any

import pytest

HEAD = "version: 1\nbudgets: [{name: b, amount: $90, period: day}]\nguardrails:\n"


def warnings(gpubroker: Any, write: Any, rule: str) -> list[str]:
    done = gpubroker("policy", "check", write("p.yaml", f"{HEAD}  - {{name: g, {rule}}}\n"), "--json")
    assert done.code == 0, done.err
    return [str(warning).partition("p.yaml:")[2] for warning in done.json["warnings"]]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("offer.provider == 'oracle'", "no known provider matches 'oracle'; did you mean 'oci'?"),
        ("'Azure' != offer.provider", "no known provider matches 'Azure'; did you mean 'azure'?"),
        ("offer.region == 'us-esat-1'", "no known region matches 'us-esat-1'; did you mean 'us-east-1'?"),
        ("offer.region.matches('^eastern')", "no known region matches '^eastern'"),
        ("(offer.region).startsWith('us_east')", "no known region matches 'us_east'"),
        ("offer.region == 'aws/us-east-1'", "'aws/us-east-1': offer.region has no provider; compare offer.provider"),
        ("offer.region.startsWith('aws/us-')", "no known region matches 'aws/us-': offer.region has no provider"),
        ("job.data_location == 'us-east-1'", "location matches 'us-east-1'; did you mean 'aws/us-east-1'?"),
        ("offer.region == (job.nodes > 0 ? 'us-eats-1' : 'us-east-1')", "no known region matches 'us-eats-1'"),
        ("(job.nodes > 1 ? offer.region : offer.zone) == 'x1'", "no known region matches 'x1'"),
        ("'us-eats-1' in [offer.region]", "no known region matches 'us-eats-1'"),
        ("offer.accelerator in ['L40S', 'H10']", "no known accelerator matches 'H10'; did you mean 'H100'?"),
        ("offer.accelerator == 'A100'", "'A100' is that card alone, not A100-80GB"),
        ("offer.capacity_type != 'ondemand'", "capacity type matches 'ondemand'; did you mean 'on_demand'?"),
        ("offer.interconnect == 'nv-link'", "no known interconnect matches 'nv-link'; did you mean 'nvlink'?"),
        (
            "user == 'x' || job.workload == 'infrence'",
            "workload matches 'infrence'; did you mean 'inference'?",
        ),
        ("job.priority in ['urgnt']", "no known priority matches 'urgnt'; did you mean 'urgent'?"),
        ("weekday_in('Europe/Paris') == 'Sat'", "no known weekday matches 'Sat'; did you mean 'sat'?"),
        ("action == 'start'", "no known action matches 'start'"),
    ],
)
def test_a_name_in_a_condition_that_matches_nothing_is_told(
    gpubroker: Any, write: Any, condition: str, says: str
) -> None:
    gpubroker("prices", "poll", "--provider", "pricebook")
    (told,) = warnings(gpubroker, write, f'freeze: {{from: 2026-12-01, to: 2026-12-09}}, when: "{condition}"')
    assert says in told
    literal = condition.index(says.split("matches ")[-1].split(": ")[0].split("; ")[0].split(" is ")[0])
    assert told.startswith(
        f"4:{len('  - {name: g, freeze: {from: 2026-12-01, to: 2026-12-09}, when: ') + 2 + literal}:"
    )


@pytest.mark.parametrize(
    "condition",
    [
        "offer.provider == 'aws' && offer.region.startsWith('us-')",
        "offer.accelerator.startsWith('A100') || offer.accelerator in ['L4', 'T4']",
        "job.workload == 'training' && job.priority != 'low' && offer.capacity_type == 'spot'",
        "offer.interconnect == '' && job.name == 'anything' && time.weekday in ['sat', 'sun']",
        "job.data_location.startsWith('aws/') && 'aws us-east-1'.contains(offer.region)",
        "offer.region.matches('^(us|eu)-') && !(job.team == 'new')",
    ],
)
def test_known_names_in_conditions_are_not(gpubroker: Any, write: Any, condition: str) -> None:
    gpubroker("prices", "poll", "--provider", "pricebook")
    assert warnings(gpubroker, write, f'freeze: {{from: 2026-12-01, to: 2026-12-09}}, when: "{condition}"') == []


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("max_price_per_gpu_hour: {'Z9*': $3, L4: $1}", "no known accelerator matches 'Z9*'"),
        ("accelerators: {deny: ['RTX 50?9']}", "accelerator matches 'RTX 50?9'; did you mean 'RTX5090'?"),
        ("allowed_locations: {regions: ['gogle/*']}", "no known provider matches 'gogle'; did you mean 'gcp'?"),
        ("data_residency: {data: 'West US 9', run_in: us}", "no known region matches 'westus9'"),
        ("allowed_locations: {regions: [Europe]}", "no known region matches 'Europe'"),
    ],
)
def test_patterns_that_match_nothing_are_told(gpubroker: Any, write: Any, rule: str, says: str) -> None:
    gpubroker("prices", "poll", "--provider", "pricebook")
    (told,) = warnings(gpubroker, write, rule)
    assert says in told
    assert ("did you mean" in told) == ("did you mean" in says)


@pytest.mark.parametrize(
    ("pattern", "shell"),
    [
        (r"eu-(north|south)-\d", "[eu-north-*, eu-south-*]"),
        ("us-.+|ca-.+", "[us-*, ca-*]"),
        (r"^ap-[a-z]+-\d+$", "'ap-*-*'"),
        ("u-" + "(a|b)" * 12, f"[u-{'a' * 12}, u-{'a' * 11}b, u-{'a' * 10}ba, u-{'a' * 10}bb]"),
    ],
)
def test_the_hint_at_a_regular_expression_can_be_followed(gpubroker: Any, write: Any, pattern: str, shell: str) -> None:
    def rule(regions: str) -> str:
        return f"{HEAD}  - {{name: g, allowed_locations: {{regions: {{deny: {regions}}}}}}}\n"

    refused = gpubroker("policy", "check", write("p.yaml", rule(f"'{pattern}'")))
    assert (refused.code, f"such as {shell}" in refused.err) == (2, True), refused.err
    assert gpubroker("policy", "check", write("p.yaml", rule(shell))).code == 0


@pytest.mark.parametrize(
    ("rule", "others"),
    [
        ("max_price_per_gpu_hour: {T4: $1, V100: $1}", ["T4g", "V100S"]),
        ("max_price_per_gpu_hour: {T4: $1, default: $9}", []),
        ("accelerators: {deny: [B200, GB200, L40]}", ["L40S"]),
        ("accelerators: {deny: [b200, gb200, l40]}", ["L40S"]),
        ("accelerators: {deny: [A100, H100]}", []),
    ],
)
def test_another_card_of_almost_the_same_name_is_told(gpubroker: Any, write: Any, rule: str, others: list[str]) -> None:
    told = warnings(gpubroker, write, rule)
    assert [warning.split("include ")[1].split(";")[0] for warning in told] == others


def test_cards_that_are_no_list_are_refused(gpubroker: Any, write: Any) -> None:
    refused = gpubroker("policy", "check", write("p.yaml", f"{HEAD}  - {{name: g, accelerators: {{deny: 5}}}}\n"))
    assert (refused.code, "expected a name or a list of names" in refused.err) == (2, True), refused.err
