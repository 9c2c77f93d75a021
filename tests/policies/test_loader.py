from datetime import timedelta

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts
from broker.core.values.money import Money
from policies.loader import load
from policies.rules.budget import Budget
from policies.rules.prices import MaxPricePerGpuHour
from tests.contracts.rule_contract import NOW, action, job, placement

NLP = """\
version: 1
policy: nlp-team
teams: {nlp: {members: [ann, bob]}}
defaults: {max_duration: 12h, allow_reference_prices: false}
guardrails:
  - name: no-crazy-prices
    max_price_per_gpu_hour: $4
    scope: {team: nlp}
budgets:
  - name: nlp-monthly
    amount: $2,000
    period: month
    timezone: Europe/Berlin
    scope: {team: nlp}
  - {name: everybody-daily, amount: $100, period: day}
"""


def refused(*files: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load({f"{chr(97 + number)}.yaml": text for number, text in enumerate(files)})
    return caught.value


def finding(text: str) -> str:
    """The one finding in a file, with line and column."""
    (problem,) = refused(text).problems
    return f"{problem.line}:{problem.column} {problem.key}: {problem.message}"


def test_a_file_becomes_rules_in_the_order_of_its_lines() -> None:
    policies = load({"team/nlp.yaml": NLP})

    assert [(rule.kind, rule.name, str(rule.source)) for rule in policies.rules] == [
        ("max_price_per_gpu_hour", "no-crazy-prices", "team/nlp.yaml:6"),
        ("budget", "nlp-monthly", "team/nlp.yaml:10"),
        ("budget", "everybody-daily", "team/nlp.yaml:15"),
    ]
    price, monthly, daily = policies.rules
    assert isinstance(price, MaxPricePerGpuHour)
    assert isinstance(monthly, Budget)
    assert isinstance(daily, Budget)
    assert monthly.config.amount == Money.usd(2000)
    assert (daily.config.timezone, daily.config.counts) == ("UTC", (MoneyKind.CASH,))
    assert policies.defaults.max_duration == timedelta(hours=12)
    assert policies.defaults.grants_cash


def test_the_budgets_of_a_job_are_those_it_falls_under() -> None:
    policies = load({"nlp.yaml": NLP})

    assert [spec.id for spec in policies.budgets(job(), "ann")] == ["nlp-monthly", "everybody-daily"]
    assert [spec.id for spec in policies.budgets(job(team=None), "ann")] == ["everybody-daily"]


def test_no_file_is_a_set_that_grants_nothing() -> None:
    policies = load({})
    rented, owned = placement(), placement("0", money=MoneyKind.AMORTISED)

    assert policies.version == "none"
    assert policies.defaults.max_duration == timedelta(hours=24)
    assert not policies.defaults.grants_cash
    assert not policies.defaults.allow_reference_prices
    answers = {
        kind: {v.code for v in policies.judge(action(placement=p), Facts(NOW)) if v.answer is not Answer.ALLOW}
        for kind, p in (("rented", rented), ("owned", owned))
    }
    assert answers == {"rented": {"no_budget"}, "owned": set()}


def test_every_rule_of_every_file_judges_the_built_in_ones_first() -> None:
    policies = load({"b.yaml": "version: 1\nguardrails: [{name: few, max_concurrent_gpus: 4}]", "a.yaml": NLP})

    verdicts = policies.judge(action(user="eve", placement=placement("40")), Facts(NOW))

    assert [verdict.name for verdict in verdicts] == [
        "membership",
        "budget-required",
        "no-crazy-prices",
        "nlp-monthly",
        "everybody-daily",
        "few",
    ]
    denied = [verdict.code for verdict in verdicts if verdict.answer is Answer.DENY]
    assert denied == ["not_a_member", "price_above_limit", "too_many_gpus"]


def test_all_actions_pass_the_same_gate() -> None:
    policies = load({"nlp.yaml": NLP})

    for kind in ActionKind:
        names = [verdict.name for verdict in policies.judge(action(kind), Facts(NOW))]
        assert len(names) == 5


# --- several files --------------------------------------------------------------------------------------------------


def defaults(**said: str) -> str:
    return "version: 1\ndefaults: {" + ", ".join(f"{key}: {value}" for key, value in said.items()) + "}"


@pytest.mark.parametrize(
    ("durations", "hours"), [((), 24), (("48h",), 48), (("48h", "6h"), 6), (("48h", None, "72h"), 48)]
)
def test_the_shortest_duration_holds(durations: tuple[str | None, ...], hours: int) -> None:
    texts = [defaults(max_duration=said) if said else "version: 1" for said in durations]

    policies = load({f"{number}.yaml": text for number, text in enumerate(texts)})

    assert policies.defaults.max_duration == timedelta(hours=hours)


def test_the_shortest_time_alone_holds_and_without_one_there_is_no_limit() -> None:
    texts = {"a.yaml": defaults(max_unattended="6h"), "b.yaml": "version: 1", "c.yaml": defaults(max_unattended="2h")}

    assert load(texts).defaults.max_unattended == timedelta(hours=2)
    assert load({"b.yaml": "version: 1"}).defaults.max_unattended is None


@pytest.mark.parametrize("switch", ["allow_reference_prices", "allow_stale_prices", "cpu_jobs_on_gpus"])
@pytest.mark.parametrize(
    ("said", "on"),
    [((), False), (("true",), True), (("true", None), True), (("true", "false"), False), ((None, None), False)],
)
def test_a_switch_is_on_when_somebody_says_so_and_nobody_says_no(
    switch: str, said: tuple[str | None, ...], on: bool
) -> None:
    texts = [defaults(**{switch: word}) if word else "version: 1" for word in said]

    policies = load({f"{number}.yaml": text for number, text in enumerate(texts)})

    assert getattr(policies.defaults, switch) is on


def test_the_order_of_capacity_is_one_for_all() -> None:
    order = "version: 1\ncapacity: {order: [owned, spot]}"

    assert load({"a.yaml": order, "b.yaml": order, "c.yaml": "version: 1"}).defaults.capacity_order == ("owned", "spot")
    error = refused(order, "version: 1\ncapacity:\n  order: [spot]")
    assert str(error) == "b.yaml: this policy file has a mistake"
    assert str(error.problems[0]) == ("line 3: capacity.order: contradicts the order in a.yaml:2; only one is possible")


def test_names_are_used_once_over_all_files() -> None:
    error = refused(NLP, "version: 1\nbudgets:\n- {amount: $1, period: week, name: no-crazy-prices}\n")

    assert error.where == "b.yaml"
    assert str(error.problems[0]) == (
        "line 3: budgets[0].name: the name 'no-crazy-prices' is already used in a.yaml:6; names must be unique"
    )
    assert "twice" not in str(refused(NLP, NLP.replace("policy: nlp-team", "policy: other")).problems[0])


def test_policies_have_names_of_their_own() -> None:
    assert "taken by a.yaml" in refused("version: 1\npolicy: x", "version: 1\npolicy: x").problems[0].message
    with pytest.raises(InvalidInput, match="mistake"):
        load({"one/p.yaml": "version: 1", "two/p.yaml": "version: 1"})


def test_a_scope_names_teams_that_some_file_lists() -> None:
    guardrail = "version: 1\nguardrails:\n- {name: few, max_concurrent_gpus: 4, scope: {team: %s}}\n"

    assert refused(NLP, guardrail % "nlpp").problems[0].message == "no file lists a team 'nlpp'; did you mean 'nlp'?"
    assert load({"a.yaml": NLP, "b.yaml": guardrail % '"nl*"'})
    assert load({"b.yaml": guardrail % "nlpp"})  # where no file lists teams, any name may be right


# --- the version ----------------------------------------------------------------------------------------------------


def test_the_version_is_of_what_is_said_not_of_how() -> None:
    version = load({"a.yaml": NLP}).version

    assert load({"elsewhere/b.yaml": f"# for the team\n\n{NLP}"}).version == version
    reordered = NLP.replace("    amount: $2,000\n    period: month\n", "    period: month\n    amount: $2,000\n")
    assert reordered != NLP
    assert load({"a.yaml": reordered}).version == version
    assert load({"a.yaml": NLP.replace("$4", "$4.01")}).version != version
    assert load({"a.yaml": NLP.replace("[ann, bob]", "[ann]")}).version != version
    assert load({"a.yaml": NLP, "b.yaml": "version: 1"}).version != version
    assert len(version) == 12


# --- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0:0 : is empty; expected a policy file: lines of the form 'key: value'"),
        ("policy: x", "1:1 version: is missing"),
        ("version: 2", "1:10 version: expected version 1; got 2"),
        ("version: true", "1:10 version: expected version 1; got True"),
        ("version: 1\nbudgts: [a]", "2:1 budgts: unknown key; did you mean 'budgets'?"),
        ("version: 1\nguardrails: []", "2:13 guardrails: is empty; add an entry, or delete the key"),
        ("version: 1\nbudgets: {}", "2:10 budgets: is empty; add an entry, or delete the key"),
        ("version: 1\nteams: {}", "2:8 teams: is empty; add an entry, or delete the key"),
        (
            "version: 1\nteams: {nlp: {members: []}}",
            "2:24 teams.nlp.members: is an empty list; name at least one, or delete the key",
        ),
        ("version: 1\nteams: {nlp: {}}", "2:9 teams.nlp.members: is missing"),
        (
            "version: 1\nteams: {nlp: {members: [ann, 7]}}",
            "2:30 teams.nlp.members[1]: expected a name; got '7'; write numbers in quotes",
        ),
        (
            "version: 1\ndefaults: {max_duration: 24}",
            "2:26 defaults.max_duration: expected a duration with its unit, such as 90s, 12m, 48h, 1h30m or 2d;"
            " got '24'",
        ),
        (
            "version: 1\ndefaults: {allow_reference_prices: yes}",
            "2:36 defaults.allow_reference_prices: expected true or false; got 'yes'",
        ),
        (
            "version: 1\ncapacity: {order: [spott]}",
            "2:20 capacity.order[0]: expected one of owned, reserved, on_demand, spot; got 'spott';"
            " did you mean 'spot'?",
        ),
        (
            "version: 1\ncapacity: {order: [spot, spot]}",
            "2:19 capacity.order: expected some of owned, reserved, on_demand, spot, each once, first choice first",
        ),
    ],
)
def test_mistakes_are_found_where_they_are(text: str, said: str) -> None:
    assert finding(text) == said


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("amount: 900", "3:12 budgets[0].amount: expected an amount with currency, such as $900; got '900'"),
        ("amount: 900 EUR", "3:12 budgets[0].amount: expected an amount with currency, such as $900; got '900 EUR'"),
        ("amount: $0", "3:12 budgets[0].amount: must be more than $0"),
        ("amount: -$5", "3:12 budgets[0].amount: must not be negative; expected an amount with currency"),
        ("amount: $2,000", "3:15 budgets[0].000: in { } a comma ends a value"),
        ("amount: ", "3:4 budgets[0].amount: has no value; write one, or delete the line"),
        ("amont: $5", "amont: unknown key; did you mean 'amount'?"),
        ("period: fortnight", "expected one of day, week, month, quarter, fixed; got 'fortnight'"),
        ("timezone: Europe/Berln", "'Europe/Berln' is not a time zone; expected an IANA name such as Europe/Berlin"),
        ("counts: [cash, sandbox]", "sandbox money never mixes with real money; write two budgets"),
        ("counts: [cash, cash]", "names one kind of money twice"),
        ("counts: []", "expected a list of cash, amortised, sandbox, such as [cash]"),
        ("counts: [gold]", "expected one of cash, amortised, sandbox; got 'gold'"),
        ("scope: {tem: nlp}", "budgets[0].scope.tem: unknown key; did you mean 'team'?"),
        ("scope: {team: []}", "budgets[0].scope.team: is an empty list; name at least one, or delete the key"),
        ("scope: {workload: trainig}", "got 'trainig'; did you mean 'training'?"),
        ("name: my budget", "expected a name of up to 64 letters, digits, dots, dashes and underscores"),
        ("name: [a]", "expected a name of up to 64 letters, digits, dots, dashes and underscores"),
        ("action: shout", "expected one of alert, ask, deny, stop; got 'shout'"),
    ],
)
def test_mistakes_in_budgets(entry: str, said: str) -> None:
    key = entry.partition(":")[0].replace("amont", "amount")
    others = [part for part in ("name: b", "amount: $5", "period: day") if not part.startswith(key)]
    error = refused(f"version: 1\nbudgets:\n- {{{', '.join([entry, *others])}}}")

    found = [f"{problem.line}:{problem.column} {problem.key}: {problem.message}" for problem in error.problems]
    assert any(said in line for line in found), found


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "has no rule; expected exactly one of accelerators, allowed_locations, approve_above"),
        ("max_price_per_gpu_hour: $4, max_concurrent_gpus: 4", "has 2 rules (max_concurrent_gpus, max_price_per"),
        ("max_price_per_gpu_hours: $4", "unknown key; did you mean 'max_price_per_gpu_hour'?"),
        ("budget: {amount: $4}", "unknown key"),
        ("max_price_per_gpu_hour: 4", "expected an amount with currency, such as $900; got '4'"),
        ("max_price_per_gpu_hour: {}", "names no accelerator"),
        ("max_price_per_gpu_hour: {H1000: $4}", "unknown accelerator 'H1000'; did you mean 'H100'?"),
        ("max_price_per_gpu_hour: {H100: $0}", "must be more than $0"),
        ("max_price_per_gpu_hour: {H100: $4, h100-sxm: $5}", "names one accelerator twice"),
        ("max_concurrent_gpus: 0", "expected a whole number of GPUs from 1 to 1000000, such as 16; got '0'"),
        ("max_concurrent_gpus: -1", "got '-1'"),
        ("max_concurrent_gpus: 1.5", "got '1.5'"),
        ("max_concurrent_gpus: true", "got true"),
        ("max_concurrent_gpus: many", "got 'many'"),
        ("allowed_locations: {}", "is empty; expected `providers` or `regions`"),
        ("allowed_locations: [aws]", "expected lines of the form 'key: value'; got a list"),
        ("allowed_locations: {providers: []}", "is an empty list; name at least one, or delete the key"),
        ("allowed_locations: {providers: {}}", "is empty; expected a list of names to allow"),
        ("allowed_locations: {providers: {alow: [aws]}}", "unknown key; did you mean 'allow'?"),
        ("allowed_locations: {regions: {deny: [eu, '']}}", "expected a name; got ''"),
        ("allowed_locations: {provider: [aws]}", "unknown key; did you mean 'providers'?"),
    ],
)
def test_mistakes_in_guardrails(rule: str, said: str) -> None:
    error = refused(f"version: 1\nguardrails:\n  - {{ name: g, {rule} }}")

    assert any(said in problem.message for problem in error.problems), error.problems
    assert all(problem.line == 3 and problem.column >= 5 for problem in error.problems)


SLIPS = [
    ("guardrails: [{name: g, reserved_quota: {gpus: {nlpp: 8}}}]",
     "3:48 guardrails[0].reserved_quota.gpus.nlpp: no file lists a team 'nlpp'; did you mean 'nlp'?"),
    ("budgets: [{name: b, amount: $5, period: day, scope: {team: [nlp, vison]}}]",
     "3:66 budgets[0].scope.team[1]: no file lists a team 'vison'; did you mean 'vision'?"),
    ("capacity: {exceptions: [{scope: {team: nlpp}, order: [spot]}]}",
     "3:40 capacity.exceptions[0].scope.team: no file lists a team 'nlpp'; did you mean 'nlp'?"),
    ("guardrails: [{name: g, allowed_locations: {providers: {deny: [awss]}}}]",
     "3:63 guardrails[0].allowed_locations.providers.deny[0]: no provider is called 'awss'; did you mean "
         "'aws'? For a future provider, write a pattern, such as 'aws[s]'"),
    ("guardrails: [{name: g, allowed_locations: {regions: azuer/eu-west}}]",
     "3:53 guardrails[0].allowed_locations.regions: no provider is called 'azuer'; did you mean 'azure'? For "
         "a future provider, write a pattern, such as 'azue[r]'"),
    ("guardrails: [{name: g, data_residency: {run_in: [owned/*, lambdaa/us-1]}}]",
     "3:59 guardrails[0].data_residency.run_in[1]: no provider is called 'lambdaa'; did you mean "
         "'lambda'? For a future provider, write a pattern, such as 'lambda[a]'"),
    ("guardrails: [{name: g, allowed_locations: {regions: {deny: ['^us-.*']}}}]",
     "3:61 guardrails[0].allowed_locations.regions.deny[0]: '^us-.*' is a regular expression; patterns here are as in "
         "a shell, such as 'us-*'"),
    *((f"guardrails: [{{name: g, allowed_locations: {{regions: {{deny: ['{expression}']}}}}}}]",
       f"3:61 guardrails[0].allowed_locations.regions.deny[0]: {expression!r} is a regular expression; patterns here "
         f"are as in a shell, such as {shell}") for expression, shell in (
        ("us-.{4}-1", "'us-????-1'"), ("us-e[as]{2}t-1", "'us-e[as][as]t-1'"), ("eu-west-[12]{1}", "'eu-west-[12]'"),
        ("us-.{2,}-[0-9]{1}", "'us-??*-[0-9]'"), ("(us|eu){1}-west-1", "[us-west-1, eu-west-1]"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), SLIPS)
def test_a_name_that_is_nearly_right_is_a_slip(text: str, said: str) -> None:
    teams = "version: 1\nteams: {nlp: {members: [ann]}, vision: {members: [bob]}}\n"
    with pytest.raises(InvalidInput) as caught:
        load({"a.yaml": teams + text}, ["aws", "azure", "lambda", "owned"])

    assert [f"{p.line}:{p.column} {p.key}: {p.message}" for p in caught.value.problems] == [said]


@pytest.mark.parametrize(("days", "warned"), [("", True), (", days: [sat]", False)])
def test_working_hours_without_days_are_warned_of(days: str, warned: bool) -> None:
    text = f'version: 1\nguardrails:\n  - {{name: a, working_hours: {{from: "08:00", to: "18:00"{days}}}}}\n'
    found = load({"p.yaml": text}).warnings
    assert any("Monday to Friday apply" in one for one in found) == warned


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ("[mon, fri]", "`[mon, fri]` means mon and fri alone; for mon, tue, wed, thu, fri write `days: mon-fri`"),
        ("[fri, mon]", "means fri and mon alone; for fri, sat, sun, mon write `days: fri-mon`"),
        ("mon-fri", ""), ("[mon-fri]", ""), ("[sat, sun]", ""), ("[mon, wed, fri]", ""), ("[mon-tue, fri]", ""),
    ],
)  # fmt: skip
def test_two_days_that_read_as_a_range_are_warned_of(days: str, said: str) -> None:
    hours = f'{{from: "08:00", to: "18:00", days: {days}}}'
    found = load({"p.yaml": f"version: 1\nguardrails:\n  - {{name: a, working_hours: {hours}}}\n"}).warnings
    assert [one for one in found if "days" in one] == ([one for one in found if said in one] if said else [])
    assert bool(said) == any(said in one for one in found if said)


def test_each_limit_of_what_may_be_held_is_told_from_the_file_that_sets_it() -> None:
    first = "version: 1\npolicy: a\ncapacity: {hold: {utilisation: 50%, horizon: 90d}}\n"
    second = "version: 1\npolicy: b\ncapacity:\n  hold: {utilisation: 60%, break_even: 24%}\n"
    said = load({"a.yaml": first, "b.yaml": second}).said_at
    assert {limit: str(place) for limit, place in said.items() if limit.startswith("holding.")} == {
        "holding.utilisation": "b.yaml:4", "holding.horizon": "a.yaml:3", "holding.break_even": "b.yaml:4",
    }  # fmt: skip
