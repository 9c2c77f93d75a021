"""What people get wrong in policy files: each is refused with its file, line and column, and what was expected."""

import pytest

from broker.core.errors import InvalidInput
from policies.loader import load
from policies.rules import RULES
from tests.policies.test_fuzz import EVERYTHING


def findings(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        load({"team/p.yaml": text})
    assert caught.value.where == "team/p.yaml"
    return [f"{p.line}:{p.column} {p.key}: {p.message}" for p in caught.value.problems]


def budget(entry: str) -> str:
    return "version: 1\nbudgets:\n  - {name: b, " + entry + "}\n"


def guardrail(entry: str) -> str:
    return "version: 1\nguardrails:\n  - {name: g, " + entry + "}\n"


def test_the_file_with_everything_is_right() -> None:
    assert {rule.kind for rule in load({"p.yaml": EVERYTHING}).rules} == set(RULES)


FIXED = "amount: $5, period: fixed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Keys, amounts, limits, time zones.
        (budget("amount: $5, perod: day"), "3:27 budgets[0].perod: unknown key; did you mean 'period'?"),
        (budget("period: day, amount: 900"),
         "3:36 budgets[0].amount: expected an amount with currency, such as $900; got '900'"),
        (budget("period: day, amount: $0"), "3:36 budgets[0].amount: must be more than $0; to forbid"
         " capacity, use allowed_locations; got $0.00"),
        (budget("period: day, amount: -$1"),
         "3:36 budgets[0].amount: must not be negative; expected an amount with currency, such as $900; got '-$1'"),
        (budget("amount: $5, period: day, timezone: Europe/Berln"),
         "3:50 budgets[0].timezone: 'Europe/Berln' is not a time zone; expected an IANA name such as Europe/Berlin or"
         " UTC; did you mean 'Europe/Berlin'?"),
        (budget("amount: $5, period: day, timezone: new_york"),
         "3:50 budgets[0].timezone: 'new_york' is not a time zone; expected an IANA name such as Europe/Berlin or UTC;"
         " did you mean 'America/New_York'?"),
        (budget("amount: $5, period: day, timezone: 7"),
         "3:50 budgets[0].timezone: expected a time zone, by its IANA name such as Europe/Berlin or UTC; got '7'"),
        (guardrail("max_concurrent_jobs: 0"),
         "3:36 guardrails[0].max_concurrent_jobs: expected a whole number of jobs from 1 to 1000000, such as 16;"
         " got '0'"),
        (guardrail("max_job_cost: $0"), "3:29 guardrails[0].max_job_cost: must be more than $0; to"
         " forbid capacity, use allowed_locations; "
            "got $0.00"),
        (guardrail("max_job_duration: 24"),
         "3:33 guardrails[0].max_job_duration: expected a duration with its unit, such as 90s, 12m, 48h, 1h30m or 2d;"
         " got '24'"),
        (guardrail("max_job_duration: 0h"),
         "3:33 guardrails[0].max_job_duration: must be longer than nothing; expected a duration with its"
         " unit, such as 90s, 12m, 48h, 1h30m or 2d"),
        (guardrail("idle_shutdown: {below: 5, for: 1h}"),
         "3:38 guardrails[0].idle_shutdown.below: expected a percentage such as 5% or 50%; got '5'"),
        (guardrail("idle_shutdown: {below: 101%, for: 1h}"),
         "3:38 guardrails[0].idle_shutdown.below: must be more than 0% and at most 100%; got 101%"),
        (guardrail("idle_shutdown: {below: 5%}"),
         "3:15 guardrails[0].idle_shutdown.for: is missing; expected a duration such as 30m"),
        (guardrail("working_hours: {from: '8:00', to: '20:00'}"),
         "3:37 guardrails[0].working_hours.from: expected a time of day such as 08:00 or 20:30; got '8:00'"),
        (guardrail("working_hours: {from: '08:00', to: '20:00', timezone: CEST}"),
         "3:69 guardrails[0].working_hours.timezone: 'CEST' is an abbreviation, which does not say where and whether"
         " summer time applies; expected an IANA name such as America/New_York, Europe/Berlin or UTC"),
        (budget("amount: $5, period: day, timezone: EST"),
         "3:50 budgets[0].timezone: 'EST' is an abbreviation, which does not say where and whether summer time applies;"
         " expected an IANA name such as America/New_York, Europe/Berlin or UTC"),
        (guardrail("working_hours: {from: '08:00', to: '20:00', days: [mon, tuesday]}"),
         "3:71 guardrails[0].working_hours.days[1]: expected one of mon, tue, wed, thu, fri, sat, sun; got 'tuesday';"
         " did you mean 'tue'?"),
        (guardrail("freeze: {from: 24.12.2026, to: 2027-01-02}"),
         "3:30 guardrails[0].freeze.from: expected a day, or a day and a time, such as 2026-12-24T18:00;"
         " got '24.12.2026'"),
        (guardrail("freeze: {from: 2027-01-02, to: 2026-12-24}"),
         "3:46 guardrails[0].freeze.to: must be later than `from`, 2027-01-02 00:00; it ends 2026-12-25 00:00"),
        (guardrail("spot: {use: sometimes}"),
         "3:27 guardrails[0].spot.use: expected one of forbidden, with_checkpoints; got 'sometimes'"),
        (guardrail("spot: {}"), "3:21 guardrails[0].spot: is empty; expected `use` or `min_share`"),
        (guardrail("capacity_types: [sport]"),
         "3:32 guardrails[0].capacity_types[0]: expected one of owned, reserved, on_demand, spot; got 'sport';"
         " did you mean 'spot'?"),
        (guardrail("accelerators: [H1000]"),
         "3:30 guardrails[0].accelerators[0]: unknown accelerator 'H1000'; did you mean 'H100'?"),
        (guardrail("data_residency: {data: a/b}"),
         "3:15 guardrails[0].data_residency.run_in: is missing; expected allowed places, such as [eu, '*/ca-*', "
             "'owned/*']"),
        (guardrail("sensitive_data: cloud"),
         "3:31 guardrails[0].sensitive_data: expected one of on_premises; got 'cloud'"),
        (guardrail("reference_prices: allowed"),
         "3:33 guardrails[0].reference_prices: expected one of forbidden; got 'allowed'"),
        (guardrail("min_interconnect: fast"),
         "3:33 guardrails[0].min_interconnect: expected one of nvlink, pcie; got 'fast'"),
        (guardrail("runaway: {}"), "3:24 guardrails[0].runaway: is empty; expected `max_age` or `max_attempts`"),
        (guardrail("max_price: $4"),
         "3:15 guardrails[0].max_price: unknown key; did you mean 'max_price_age' or 'max_price_per_gpu_hour'?"),
        (guardrail("providers: {deny: [vast]}"), "3:15 guardrails[0].providers: unknown key; it belongs in a rule, such"
         " as allowed_locations: {providers: …}"),
        (guardrail("idle_shutdon: {below: 5%, for: 1h}"),
         "3:15 guardrails[0].idle_shutdon: unknown key; did you mean 'idle_shutdown'?"),
        (guardrail("spot: forbidden"), "3:21 guardrails[0].spot: expected lines of the form 'key: value'; got"
         " 'forbidden'; known here: min_gpu_hours, min_share, timezone, use, window"),
        # Conditions that do not type-check.
        (guardrail("max_job_cost: $5, when: 'job.nodes = 1'"),
         "3:50 guardrails[0].when: expected a value or an operator; got '='; write == to compare"),
        (guardrail("max_job_cost: $5, when: 'spend.asked > \"100\"'"),
         "3:52 guardrails[0].when: a number cannot be compared with a text; write numbers without quotes"),
        (guardrail("max_job_cost: $5, when: 'job.max_price > 1.0'"),
         "3:44 guardrails[0].when: job has no field 'max_price'; known are name, team, project, environment, workload,"
         " priority, nodes, max_cost, max_hours, deadline, sensitive, data_location, data_gb, checkpoints, retries"),
        (guardrail("max_job_cost: $5, when: 'job.nodes'"),
         "3:40 guardrails[0].when: expected a condition that is true or false, such as spend.asked > 100.0; this is a"
         " whole number"),
        (guardrail("max_job_cost: $5, when: 'job.nodes > 1 and job.nodes < 3'"),
         "3:54 guardrails[0].when: expected an operator such as && or ==, or the end; got 'and'; write &&"),
        (guardrail("max_job_cost: $5, when: 'hour_in(\"Berlin\") > 3'"),
         "3:48 guardrails[0].when: expected a time zone such as Europe/Berlin; got \"Berlin\"; did you mean"
         " 'Europe/Berlin'?"),
        # Approvers who do not exist.
        (f"teams: {{nlp: {{members: [ann, bob]}}}}\n{guardrail('max_job_cost: $5, action: ask, approvers: [anm]')}",
         "4:58 guardrails[0].approvers[0]: no team has a member 'anm', so nobody of that name can approve; "
             "did you mean 'ann'? Or add the team, such as finance: {members: [anm]}"),
        # Fixed days.
        (budget(FIXED), "3:5 budgets[0]: `period: fixed` needs `from`; expected a day such as 2026-12-24"),
        (budget(f"{FIXED}, from: 2026-11-31, to: 2026-12-01"),
         "3:48 budgets[0].from: expected a day such as 2026-12-24; got '2026-11-31'"),
        (budget(f"{FIXED}, from: 2026-12-02, to: 2026-12-01"),
         "3:64 budgets[0].to: is before the first day, 2026-12-02; got 2026-12-01"),
        (budget("amount: $5, period: day, to: 2026-12-01"),
         "3:44 budgets[0].to: is for `period: fixed` only; this period follows the calendar"),
        # Overlapping scopes.
        (guardrail("max_job_cost: $5, scope: {team: [a, b]}")
         + "  - {name: h, max_job_cost: $9, scope: {team: [b, a]}}",
         "4:5 guardrails[1]: covers the same jobs as the max_job_cost in line 3, so only the stricter one "
             "takes effect; keep one, or give them different scopes"),
        (budget("amount: $5, period: day")
         + "  - {name: c, amount: $9, period: day, counts: [cash], timezone: UTC, action: deny}",
         "4:5 budgets[1]: covers the same jobs as the budget per day in line 3, so only the stricter one "
             "takes effect; keep one, or give them different scopes"),
    ],
)  # fmt: skip
def test_it_is_refused_with_its_place(text: str, said: str) -> None:
    assert said in findings(text)


@pytest.mark.parametrize(
    "more",
    [
        "  - {name: h, max_job_cost: $9, scope: {team: a}}",
        "  - {name: h, max_job_cost: $9, when: 'job.nodes > 1'}",
        "  - {name: h, max_job_duration: 9h}",
    ],
)
def test_what_is_about_other_jobs_does_not_overlap(more: str) -> None:
    assert load({"p.yaml": guardrail("max_job_cost: $5") + more})


def test_budgets_of_other_money_or_other_days_do_not_overlap() -> None:
    entries = ("amount: $5, period: day", "amount: $5, period: week", "amount: $5, period: day, counts: [sandbox]",
               f"{FIXED}, from: 2026-01-01, to: 2026-02-01", f"{FIXED}, from: 2026-02-02, to: 2026-03-01")  # fmt: skip
    text = "version: 1\nbudgets:\n" + "".join(f"  - {{name: b{n}, {entry}}}\n" for n, entry in enumerate(entries))

    assert len(load({"p.yaml": text}).rules) == 5


def test_everything_that_is_wrong_with_a_file_is_said_at_once() -> None:
    text = (
        "version: 1\nteams: {nlp: {members: [ann]}}\nbudgets:\n  - {name: a, amount: 5, period: day}\n"
        "guardrails:\n  - {name: a, max_job_cost: $5, scope: {team: npl}, when: 'usr == 1'}\n"
        "  - {name: c, spot: {use: never}}\n"
    )

    assert [line.split(" ")[0:2] for line in findings(text)] == [
        ["4:23", "budgets[0].amount:"],
        ["6:12", "guardrails[0].name:"],
        ["6:47", "guardrails[0].scope.team:"],
        ["6:60", "guardrails[0].when:"],
        ["7:27", "guardrails[1].spot.use:"],
    ]


FOLLOW_ON = [
    # A key that is misspelt is not missing as well, and nothing is said about what nobody can know then.
    ("budgets:\n  - {name: a, amount: $5, period: day}\n  - {name: b, amount: $5, perod: day}\n",
     ["4:27 budgets[1].perod: unknown key; did you mean 'period'?"]),
    ("budgets:\n  - {name: a, amount: $5, period: dai}\n  - {name: b, amount: $5, period: dai}\n",
     [f"{line}:35 budgets[{line - 3}].period: expected one of day, week, month, quarter, fixed; got 'dai'; did you mean"
      " 'day'?" for line in (3, 4)]),
    ("guardrails:\n  - {name: a, max_job_cost: $5, scop: {team: nlp}}\n  - {name: b, max_job_cost: $6}\n",
     ["3:33 guardrails[0].scop: unknown key; did you mean 'scope'?"]),
    ("guardrails:\n  - {name: a, max_job_cost: $5, when: 'job.node > 1'}\n"
     "  - {name: b, max_job_cost: $6, when: 'job.node > 1'}\n",
     [f"{line}:44 guardrails[{line - 3}].when: job has no field 'node'; did you mean 'nodes'?" for line in (3, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FOLLOW_ON)
def test_what_follows_from_a_mistake_is_not_said_beside_it(text: str, said: list[str]) -> None:
    assert findings(f"version: 1\n{text}") == said


def test_a_cut_amount_hides_no_other_mistake() -> None:
    text = "version: 1\nbudgets:\n  - {name: a, amount: $2,000, period: month}\n  - {name: b, amount: 9, period: day}\n"
    assert findings(text) == [
        '3:26 budgets[0].000: in { } a comma ends a value; write the amount in quotes: "$2,000"',
        "4:23 budgets[1].amount: expected an amount with currency, such as $900; got '9'",
    ]


def test_a_team_that_is_called_wrong_hides_no_other_mistake() -> None:
    assert findings("version: 1\nteams: {a b: {members: [x]}, v: [ann], w: {member: [x]}}\n") == [
        "2:9 teams.a b: expected a name of up to 64 letters, digits, dots, dashes and underscores that begins with a"
        " letter or digit; got 'a b'",
        "2:33 teams.v: expected lines of the form 'key: value'; got a list; known here: members",
        "2:44 teams.w.member: unknown key; did you mean 'members'?",
    ]


def test_a_file_that_cannot_be_read_makes_no_mistakes_in_others() -> None:
    teams = "version: 1\nteams: {nlp: {members: [ann]}}\n"
    uses = teams.replace("nlp", "vision") + (
        "guardrails:\n- {name: g, max_job_cost: $5, scope: {team: nlp}, action: ask, approvers: [olga]}\n"
    )
    with pytest.raises(InvalidInput) as caught:
        load({"a.yaml": teams + "budgets: [\n", "b.yaml": uses})
    assert (caught.value.where, caught.value.others) == ("a.yaml", ())
