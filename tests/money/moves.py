"""The moves of the money tests, with the possible values of each argument, the simplest first, and the files made from
these values.

A script is a list of moves, such as ``("extend", {"job": 0, "max_cost": "$50"})``. Both drivers, Hypothesis and the
seeded one, draw from these tables, and their output can be replayed by `tests.money.play.replay`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.unreadable import DAMAGES

Move = tuple[str, dict[str, Any]]
Options = Mapping[str, Sequence[Any]]

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "America/Santiago")
PERIODS = ("day", "month", "week", "quarter", "fixed")
AMOUNTS = ("$100", "$30", "$1000", "$250", "$10000", "$10")
POOL_NAMES = ("aws-spot", "aws", "gcp", "gcp-spot", "vast", "aws-8", "gcp-8-spot", "owned")

JOB: Options = {
    "machine": ("H100:1", "H100:1", "any", "H100:8"),
    "nodes": (1, 1, 1, 1, 2, 64),
    "capacity": ("", "", "on_demand", "spot"),
    "providers": ("", "", "", "aws", "gcp", "vast"),
    "max_cost": ("", "", "$10", "$50", "$3", "$95", "$1000000"),
    "max_duration": ("3h", "", "10h", "1h", "3d", "30d", "3650d"),
    "work": ("", "", "2h", "30h"),
    "deadline": ("", "", "", "12h", "5d"),
    "value_of_time": ("", "", "$5"),
    "unattended": ("", "", "", "2h"),
    "checkpoint": ("", "", "every: 10m, size: 50GB"),
    "retry": (0, 0, 3),
    "data": ("", "", "", "50GB", "2TB"),
    "sensitive": (False, False, False, True),
    "priority": ("normal", "low", "urgent"),
    "team": ("", "nlp"),
    "project": ("", "", "p1"),
    "workload": ("training", "batch", "inference"),
    "environment": ("", "", "prod"),
    "array": ("", "", "", "", "", "range: 3, parallel: 2", "range: 5, parallel: 5", "range: 4, parallel: 1"),
}
POLICY: Options = {
    "amount": AMOUNTS,
    "period": PERIODS,
    "zone": ZONES,
    "action": ("deny", "deny", "deny", "stop"),
    "top_up": (True, True, True, False),
    "team_amount": ("", "", "$40", "$10"),
    "team_period": PERIODS[:4],
    "ask_above": ("", "", "cost: $20", "duration: 5h", "gpus: 4"),
    "max_price": ("", "", "deny $4.5", "ask $2"),
    "places": ("", "", "deny aws", "deny gcp", "ask aws"),
    "freeze": ("", "", "", "today", "tomorrow"),
    "unattended": ("", "", "1h"),
    "default_max": ("24h", "3h"),
    "withdrawn": (False, False, False, False, False, True),
}
SPANS = ("2s", "1m", "10m", "1h", "5h", "1d", "3d", "10d", "40d", "400d", "end-30m", "end-30m", "end-5s", "end-5h")
MOVES: Mapping[str, Options] = {
    "wait": {"span": SPANS, "looks": (1, 2, 3, 6, 0)},
    "submit": {"user": ("ann", "bob"), **JOB},
    "extend": {
        "job": range(4),
        "max_cost": ("", "$20", "$60", "$500", "$100000"),
        "max_duration": ("", "20h", "10d", "90d"),
    },
    "cancel": {"job": range(4)},
    "answer": {"job": range(4), "who": ("", "", "cat", "dan", "ann"), "yes": (True, True, False)},  # "": who may
    "ahead": {"user": ("ann", "bob"), "total": ("$50", "$500"), "days": (1, 30)},
    "revoke": {"which": range(2)},
    "policy": POLICY,
    "price": {"pool": POOL_NAMES[:7], "times": ("2", "10", "0.5", "1.1", "40"), "told": (True, True, False)},
    "tell": {},
    "capacity": {"pool": POOL_NAMES, "there": (False, True)},
    "fate": {
        "boots": (60.0, 0.0, 900.0, 7200.0),
        "queued": (False, False, True),
        "comes": ("up", "up", "no_capacity", "broken"),
        "claims": (5.0, 5.0, 600.0, None),
        "runs": (None, 1800.0, 20000.0, 200000.0),
        "fails": (False, False, True),
        "stops": (20.0, 0.0, 100.0),
        "says": ("", "", "", "preempted"),
    },
    "preempt": {"machine": range(3), "noticed": (True, False)},
    "lose": {"machine": range(3)},
    "kill_agent": {"machine": range(3)},
    "engine_fails": {
        "call": ("submit", "observe", "find", "cancel", "logs"),
        "error": ("retry", "sold_out", "refused", "login", "crash", "crash_after"),
        "times": (1, 3, 40),
    },
    "folder_fails": {
        "call": ("read", "write_lease", "prepare"),
        "error": ("retry", "garbage"),
        "times": (1, 3, 40),
    },
    "silence": {"machine": range(3), "silent": (True, False)},
    "garble": {"job": range(4), "how": range(len(DAMAGES))},
    "heal": {},
    "restart": {},
    "wrong_clock": {"by": ("400d", "5h", "40d", "-5h", "-40d"), "looks": (1, 2)},
}
# Values with which a policy requires approvals, for scripts about approvals.
ASKS: Options = {
    "ask_above": ("cost: $5", "cost: $20", "duration: 2h", "gpus: 4"),
    "max_price": ("ask $2", "ask $0.5"),
    "places": ("ask aws", "ask gcp"),
}
WEIGHTS: Mapping[str, int] = {
    "wait": 30, "submit": 14, "extend": 6, "cancel": 2, "answer": 5, "ahead": 1, "revoke": 1, "policy": 3, "price": 5,
    "tell": 2, "capacity": 2, "fate": 6, "preempt": 4, "lose": 1, "kill_agent": 1, "engine_fails": 4,
    "folder_fails": 2, "silence": 1, "garble": 1, "heal": 2, "restart": 2, "wrong_clock": 1,
}  # fmt: skip


ANY_CAPACITY = "capacity_types: [owned, reserved, on_demand, spot]"


def job_text(name: str, said: Mapping[str, Any]) -> str:
    """The job file with these values."""
    machines = {
        "H100:1": f"resources: {{accelerators: 'H100:1', {ANY_CAPACITY}}}",
        "H100:8": f"resources: {{accelerators: 'H100:8', {ANY_CAPACITY}}}",
        "any": f"resources: {{any_of: [{{accelerators: 'H100:1'}}, {{accelerators: 'H100:8'}}], {ANY_CAPACITY}}}",
    }
    lines = [f"name: {name}", "run: 'true'", machines[said["machine"]], f"num_nodes: {said['nodes']}"]
    lines += [
        f"{key}: {said[key]}"
        for key in (
            "max_cost", "max_duration", "work", "deadline", "value_of_time", "team", "project", "workload",
            "environment", "priority",
        )
        if said[key]
    ]  # fmt: skip
    lines += [f"max_unattended: {said['unattended']}"] if said["unattended"] else []
    lines += [f"checkpoint: {{{said['checkpoint']}}}"] if said["checkpoint"] else []
    lines += [f"retry: {{failures: {said['retry']}, backoff: 1m}}"] if said["retry"] else []
    data = [f"location: aws/us-east-1, size: {said['data']}"] if said["data"] else []
    data += ["sensitive: true"] if said["sensitive"] else []
    lines += [f"data: {{{', '.join(data)}}}"] if data else []
    limits = [f"capacity_types: [{said['capacity']}]"] if said["capacity"] else []
    limits += [f"providers: [{said['providers']}]"] if said["providers"] else []
    lines += [f"constraints: {{{', '.join(limits)}}}"] if limits else []
    lines += [f"array: {{{said['array']}}}"] if said["array"] else []
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class ExpectedBudget:
    """One budget as the test expects it. ``period``: as in the file, or the first and last day of a fixed one."""

    name: str
    period: str
    zone: str
    team: str
    days: tuple[date, date] | None = None


@dataclass(frozen=True, slots=True)
class ExpectedPolicy:
    """A policy as the test expects it, with the text that the broker reads.

    Prices are USD per GPU and hour, times UTC; ``frozen``: half-open.
    """

    text: str
    amounts: Mapping[ExpectedBudget, str]
    max_price: str = ""
    places: str = ""
    frozen: tuple[datetime, datetime] | None = None
    said: Mapping[str, Any] = field(default_factory=dict)


def terms_of(said: Mapping[str, Any], now: datetime) -> ExpectedPolicy:
    """The policy with these values at that time (UTC, by the broker's clock)."""
    zone, amounts, budgets = said["zone"], dict[ExpectedBudget, str](), list[str]()
    if not said["withdrawn"]:
        days = None
        dates = ""
        if said["period"] == "fixed":
            first = now.astimezone(ZoneInfo(zone)).date().replace(day=1)
            days = (first, first + timedelta(days=75))
            dates = f", from: {days[0]}, to: {days[1]}"
        more = "" if said["top_up"] else ", top_up: false"
        budgets.append(
            f"{{name: all, amount: '{said['amount']}', period: {said['period']}{dates}, timezone: {zone}, "
            f"action: {said['action']}{more}}}"
        )
        amounts[ExpectedBudget("all", said["period"], zone, "", days)] = said["amount"]
        if said["team_amount"]:
            budgets.append(
                f"{{name: nlp, amount: '{said['team_amount']}', period: {said['team_period']}, timezone: {zone}, "
                f"scope: {{team: nlp}}}}"
            )
            amounts[ExpectedBudget("nlp", said["team_period"], zone, "nlp")] = said["team_amount"]
    rules, frozen = list[str](), None
    if said["ask_above"]:
        rules.append(f"{{name: big, approve_above: {{{said['ask_above']}, approvers: [cat], expires: 6h}}}}")
    if said["max_price"]:
        what, price = said["max_price"].split()
        asks = ", action: ask, approvers: [cat, dan], expires: 3h" if what == "ask" else ""
        rules.append(f"{{name: price, max_price_per_gpu_hour: '{price}'{asks}}}")
    if said["places"]:
        what, provider = said["places"].split()
        asks = ", action: ask, approvers: [dan], expires: 12h" if what == "ask" else ""
        rules.append(f"{{name: places, allowed_locations: {{providers: {{deny: {provider}}}}}{asks}}}")
    if said["freeze"]:
        first = now.date() + timedelta(days=0 if said["freeze"] == "today" else 1)
        rules.append(f"{{name: frozen, freeze: {{from: {first}, to: {first}}}}}")
        begins = datetime(first.year, first.month, first.day, tzinfo=now.tzinfo)
        frozen = (begins, begins + timedelta(days=1))
    defaults = f"max_duration: {said['default_max']}, allow_stale_prices: true"
    defaults += f", max_unattended: {said['unattended']}" if said["unattended"] else ""
    text = f"version: 1\npolicy: stage\ndefaults: {{{defaults}}}\n"
    for key, entries in (("budgets", budgets), ("guardrails", rules)):
        if entries:
            text += f"{key}:\n" + "".join(f"  - {entry}\n" for entry in entries)
    return ExpectedPolicy(text, amounts, said["max_price"], said["places"], frozen, dict(said))
