"""Names in scopes that no job has used are said when policy files are checked and applied; nothing is refused."""

from typing import Any

import pytest

from broker.app.jobs import unknown_names

JOB = "name: tiny\nresources: {cpus: 1}\nrun: echo\nproject: assistants\nenvironment: staging\n"


def scoped(scope: str) -> str:
    return f"version: 1\nbudgets:\n  - {{name: b, amount: $9, period: month, scope: {{{scope}}}}}\n"


@pytest.fixture
def a_job(gpubroker: Any, write: Any) -> None:
    assert gpubroker("submit", write("job.yaml", JOB), "--yes", "--detach").code == 0


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        ("project: asistants", "no job of project 'asistants' is known; did you mean 'assistants'?"),
        ("environment: production", "no job of environment 'production' is known"),
        ("user: nobody-of-that-name", "no job of user 'nobody-of-that-name' is known"),
    ],
)
def test_a_name_that_no_job_has_used_is_said_and_nothing_is_refused(
    gpubroker: Any, write: Any, a_job: None, scope: str, says: str
) -> None:
    file = write("p.yaml", scoped(scope))
    for command in ("check", "apply"):
        done = gpubroker("policy", command, file)
        assert done.code == 0
        column = scoped(scope).splitlines()[2].index(scope.partition(": ")[2]) + 1
        assert f"warning: {file}:3:{column}: {says}" in done.err
        assert gpubroker("policy", command, file, "--json").json["warnings"] == [f"{file}:3:{column}: {says}"]


@pytest.mark.parametrize(
    "scope",
    [
        "project: assistants",
        "environment: [staging]",
        "project: 'asist*'",  # a pattern is for names to come
        "user: root",  # has an account on this machine
        "workload: batch",
        "team: nlp",  # no job has said any team yet: there is nothing to go by
    ],
)
def test_a_name_that_is_known_or_cannot_be_judged_is_not(gpubroker: Any, write: Any, a_job: None, scope: str) -> None:
    done = gpubroker("policy", "check", write("p.yaml", scoped(scope)), "--json")
    assert done.json["warnings"] == []


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (
            "capacity_types: [spot], scope: {team: 'visoin*'}",
            "team matches 'visoin*'; did you mean 'vision'?",
        ),
        ("capacity_types: [spot], except: [{user: 'pdh-*'}]", "no listed user matches 'pdh-*'"),
        ("capacity_types: [spot], except: {user: 'xan*', team: 'v*'}", "no listed user matches 'xan*'"),
        (
            "purchases: {max_commitment: $9, max_term: 14d, approvers: [carl, anna], buyers: [anno]}",
            "no job of user 'anno' is known",
        ),
        (
            "purchases: {max_commitment: $9, max_term: 14d, approvers: [carl, anna], providers: [amazn]}",
            "'amazn'; did you mean 'aws'?",
        ),
        ("capacity_types: [spot], scope: {team: 'vis*', user: ['a*', 'phd-?']}", ""),
        ("capacity_types: [spot], when: \"job.team == ''\"", ""),
    ],
)
def test_patterns_in_scopes_are_compared_with_the_listed_teams_and_people(
    gpubroker: Any, write: Any, rule: str, says: str
) -> None:
    teams = "teams: {nlp: {members: [anna, 'phd-*']}, vision: {members: [carl]}}\n"
    file = write("p.yaml", f"{scoped('')}guardrails: [{{name: g, {rule}}}]\n{teams}")
    warnings = gpubroker("policy", "check", file, "--json").json["warnings"]
    assert [says in warning for warning in warnings] == [True] * bool(says), warnings


def test_members_of_teams_are_known_before_they_submit(gpubroker: Any, write: Any, a_job: None) -> None:
    teams = "teams: {nlp: {members: [new-here, 'phd-*']}}\n"
    known = write("p.yaml", scoped("user: [new-here, phd-7], team: nlp") + teams)
    assert gpubroker("policy", "check", known, "--json").json["warnings"] == []


def test_without_any_job_there_is_nothing_to_go_by(gpubroker: Any, write: Any) -> None:
    file = write("p.yaml", scoped("project: asistants, user: nobody-of-that-name"))
    assert gpubroker("policy", "apply", file, "--json").json["warnings"] == []


def test_names_in_exceptions_of_the_order_of_capacity_are_looked_at_too(
    gpubroker: Any, write: Any, a_job: None
) -> None:
    text = "version: 1\ncapacity: {exceptions: [{scope: {project: [assistants, asistants]}, order: [spot]}]}\n"
    file = write("p.yaml", text)
    (warning,) = gpubroker("policy", "check", file, "--json").json["warnings"]
    assert warning == (
        f"{file}:2:{text.splitlines()[1].index('asistants]') + 1}: no job of project 'asistants' is known; did"
        " you mean 'assistants'?"
    )


APPROVERS = """\
version: 1
guardrails:
  - {name: ask, max_job_cost: $5, action: ask, approvers: [root, nobody-of-that-name]}
  - {name: more, approve_above: {cost: $9, approvers: "zz-*"}}
  - {name: most, approve_above: {cost: $99, approvers: nobody-else-either, own_requests: true}}
"""


def test_approvers_whom_nobody_here_knows_are_said(gpubroker: Any, write: Any) -> None:
    file = write("p.yaml", APPROVERS)
    says = "has no account on this machine and no activity in this store"
    expected = [
        f"{file}:{line}:{APPROVERS.splitlines()[line - 1].index(name) + 1}: perhaps nobody can approve: {name!r} {says}"
        for line, name in ((3, "nobody-of-that-name"), (5, "nobody-else-either"))
    ]
    for command in ("check", "apply"):
        done = gpubroker("policy", command, file)
        assert done.code == 0
        assert all(f"warning: {one}" in done.err for one in expected)
    assert gpubroker("policy", "check", file, "--json").json["warnings"] == expected


def test_approvers_are_known_who_have_acted_here(
    gpubroker: Any, write: Any, a_job: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = "version: 1\nguardrails: [{name: a, max_job_cost: $5, action: ask, approvers: [%s], own_requests: true}]\n"
    (me,) = {job["user"] for job in gpubroker("jobs", "list", "--json").json["jobs"]}
    monkeypatch.setattr(unknown_names, "has_account", lambda user: False)
    assert gpubroker("policy", "check", write("p.yaml", asks % me), "--json").json["warnings"] == []
    (warning,) = gpubroker("policy", "check", write("p.yaml", asks % f"{me}t"), "--json").json["warnings"]
    assert f"; did you mean {me!r}?" in warning
    assert gpubroker("people", "invite", f"{me}t", "--administrator").code == 0
    assert gpubroker("policy", "check", write("p.yaml", asks % f"{me}t"), "--json").json["warnings"] == []
