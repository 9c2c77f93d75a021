"""What the check lets through, the CEL library can evaluate: the two must not disagree about types."""

import re

import pytest
from cel import compile as compile_cel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.policy.policy import Facts
from broker.core.values.money import Money
from policies.cel_typecheck import ExpressionError, check
from policies.conditions import ENVIRONMENT, Variables, parse_condition
from tests.contracts.rule_contract import NOW, action, job, placement
from tests.counts import FULL

VARIABLES = [
    *(f"{group}.{name}" for group, names in ENVIRONMENT.items() if not isinstance(names, str) for name in names),
    *(name for name, kind in ENVIRONMENT.items() if isinstance(kind, str)),
]
DECLARED = {
    variable: names
    if isinstance(names := ENVIRONMENT[variable.partition(".")[0]], str)
    else names[variable.split(".")[1]]
    for variable in VARIABLES
}
MAY_BE_ABSENT = {variable for variable, kind in DECLARED.items() if kind.endswith("?")}
KINDS = {variable: kind.removesuffix("?") for variable, kind in DECLARED.items()}
GROUPS = frozenset(group for group, names in ENVIRONMENT.items() if not isinstance(names, str))
LITERALS = {
    "int": ["1", "0", "7"], "double": ["2.5", "0.0"],
    "bool": ["true", "false", *(f"has({name})" for name in sorted(MAY_BE_ABSENT))],
    "string": ['"a"', "'nlp'", '""'],
    "timestamp": ['timestamp("2026-11-21T00:00:00Z")'], "duration": ['duration("90m")', 'duration("1h30m")'],
}  # fmt: skip
# How a value of each type can come about, from values of the types in brackets.
SHAPES = {
    "bool": ["[any] == [same]", "[any] != [same]", "[ordered] < [same]", "[ordered] >= [same]", "[bool] && [bool]",
             "[bool] || [bool]", "![bool]", "[any] in [[same], [same]]", "[string].startsWith([string])",
             "[string].contains([string])", "[bool] ? [bool] : [bool]", "[int] < [double]", "[double] == [int]"],
    "int": ["[int] + [int]", "[int] - [int]", "[int] * [int]", "[int] / [int]", "[int] % [int]", "-[int]",
            "size([string])", "[string].size()", "int([double])", "[timestamp].getHours()",
            "[timestamp].getDayOfWeek()",
            "[duration].getMinutes()", "size([[any], [same]])", "[bool] ? [int] : [int]"],
    "double": ["[double] + [double]", "[double] * [double]", "[double] / [double]", "-[double]", "double([int])",
               "[bool] ? [double] : [double]"],
    "string": ["[string] + [string]", "string([int])", "string([double])", "[bool] ? [string] : [string]"],
    "timestamp": ["[timestamp] + [duration]", "[timestamp] - [duration]", "[bool] ? [timestamp] : [timestamp]"],
    "duration": ["[duration] + [duration]", "[timestamp] - [timestamp]", "[duration] - [duration]"],
}  # fmt: skip
_ORDERED = ["int", "double", "string", "timestamp", "duration"]


@st.composite
def expressions(draw: st.DrawFn, kind: str = "bool", depth: int = 3) -> str:
    """Something of that type, put together at random; now and then something else, which must be found."""
    if draw(st.integers(0, 40)) == 0:
        kind = draw(st.sampled_from(sorted(SHAPES)))
    leaves = LITERALS[kind] + [variable for variable, of in KINDS.items() if of == kind]
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(leaves))
    shape = draw(st.sampled_from(SHAPES[kind]))
    same = draw(st.sampled_from(_ORDERED))
    parts = re.split(r"\[(any|same|ordered|" + "|".join(SHAPES) + r")\]", shape)
    for n in range(1, len(parts), 2):
        of = same if parts[n] in ("any", "same", "ordered") else parts[n]
        parts[n] = draw(expressions(of, depth - 1))
    return f"({''.join(parts)})"


@given(expressions())
@settings(
    max_examples=500 if FULL else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_what_the_check_lets_through_can_be_evaluated(text: str) -> None:
    try:
        checked = check(text, ENVIRONMENT)
    except ExpressionError as mistake:
        assert 0 <= mistake.at <= len(text)  # noqa: PT017 # either outcome is right
        return
    assert checked.text == text
    seen = Variables(action(job=job(max_cost=Money.usd(5)), placement=placement()), Facts(NOW), GROUPS)
    try:
        answer = parse_condition(text)._program.execute(seen.context)
    except KeyError:
        assert checked.unasked, "what may be absent was asked about everywhere"
        return
    except (ZeroDivisionError, OverflowError):
        return  # no number: only evaluating it could tell
    except TypeError:
        assert "/" in text, "only 0.0 / 0.0 cannot be compared"
        return
    except ValueError as error:
        assert "overflow" in str(error) or "range" in str(error)  # noqa: PT017
        return
    assert isinstance(answer, bool)


@pytest.mark.parametrize(
    "text",
    ["user == 1", 'user == "ann" || job.nodes > "2"', "job.nodes > 99 && user > 1", "job.nodes < 99 ? true : user"],
)
def test_a_mistake_that_evaluation_on_full_facts_does_not_find_is_found(text: str) -> None:
    """Why there is a check: CEL skips the wrong side, or finds two types unequal."""
    full = action(user="ann", job=job(max_cost=Money.usd(5)), placement=placement())
    assert isinstance(compile_cel(text).execute(Variables(full, Facts(NOW), GROUPS).context), bool)
    with pytest.raises(ExpressionError):
        check(text, ENVIRONMENT)


def test_every_variable_can_be_asked_and_has_the_type_that_is_declared() -> None:
    kinds = {"string": str, "int": int, "double": float, "bool": bool}
    full = job(max_cost=Money.usd(5), max_duration=3600, data={"size": 5}, deadline=7200)
    everything = action(job=full, placement=placement())
    context = Variables(everything, Facts(NOW), GROUPS)
    for variable in VARIABLES:
        name = variable.partition(".")[2]
        kind = KINDS[variable]
        asked = parse_condition(
            f"has({variable}) ? {variable} == {variable} : true" if name else f"{variable} == {variable}"
        )
        assert asked._program.execute(context.context) is True, variable
        if kind in kinds and (not name or parse_condition(f"has({variable})")._program.execute(context.context)):
            from cel import evaluate

            assert type(evaluate(variable, context.context)) is kinds[kind], variable


def test_what_may_be_absent_is_what_a_job_and_a_machine_need_not_say() -> None:
    bare = placement(accelerator=None, count=0)  # and nothing is known of interruptions, nor of when it is done
    seen = Variables(action(job=job(), placement=bare), Facts(NOW), GROUPS)
    absent = {
        name for name in VARIABLES if "." in name and not parse_condition(f"has({name})")._program.execute(seen.context)
    }

    assert absent == MAY_BE_ABSENT


@pytest.mark.parametrize(
    ("text", "unasked"),
    [
        ("job.max_cost > 3.0", [("job.max_cost", 0)]),
        ("has(job.max_cost) && job.max_cost > 3.0", []),
        ("job.max_cost > 3.0 && has(job.max_cost)", []),
        ("!has(job.max_cost) || job.max_cost > 3.0", []),
        ("has(job.max_cost) || job.max_cost > 3.0", [("job.max_cost", 21)]),
        ("!has(job.max_cost) && job.max_cost > 3.0", [("job.max_cost", 22)]),
        ("has(job.max_cost) ? job.max_cost > 3.0 : job.nodes > 1", []),
        ("has(job.max_cost) ? job.nodes > 1 : job.max_cost > 3.0", [("job.max_cost", 36)]),
        ("has(job.max_cost) && (job.nodes > 1 || job.max_cost > 3.0)", []),
        ("(has(job.max_cost) && job.nodes > 1) || job.max_cost > 3.0", [("job.max_cost", 40)]),
        ("has(job.max_cost) && job.nodes > 1 && job.max_cost > 3.0", []),
        ("!has(job.max_cost) || job.nodes > 1 || job.max_cost > 3.0", []),
        ("!(!has(job.max_cost) || job.nodes > 1) && job.max_cost > 3.0", []),
        ("has(job.max_cost) && job.data_gb > 3.0", [("job.data_gb", 21)]),
        ("job.data_gb > 3.0 || job.max_cost > 3.0 || job.data_gb > 9.0", [("job.data_gb", 0), ("job.max_cost", 21)]),
        ("job.nodes > 1 && offer.price > 3.0 && spend.asked > 1.0", []),
    ],
)
def test_what_may_be_absent_and_was_not_asked_for_is_told(text: str, unasked: list[tuple[str, int]]) -> None:
    assert list(check(text, ENVIRONMENT).unasked) == unasked
