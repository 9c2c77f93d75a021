"""An example of each body that the API takes, by operation, and of a problem."""

from collections.abc import Mapping
from typing import Any

_JOB = "name: train\nteam: nlp\nresources: {accelerators: H100:8}\nrun: python train.py\nmax_duration: 12h\n"
_FILES = {"team.yaml": "version: 1\npolicy: team\nbudgets:\n  - {name: nlp, amount: $9000, period: month}\n"}
_BLOCK = {"kind": "reservation", "machine": "H100:8", "provider": "aws", "starts": "2026-12-01T00:00Z"}
_REASON = {"reason": "agreed with finance"}

BODIES: Mapping[str, Mapping[str, Any]] = {
    "extend_job": {"max_cost": "$900", "max_duration": "72h"},
    "grant_approval": _REASON,
    "refuse_approval": _REASON,
    "plan_job": {"job_file": _JOB},
    "submit_job": {"job_file": _JOB},
    "retry_job": {"from_start": True},
    "resume_job": {"job_file": _JOB, "step": 12000},
    "freeze_statement": {"idle": "by-use", "shared": "even"},
    "answer_anomaly": {"answer": "planned", "reason": "the runs before the deadline"},
    "answer_advice": {"verdict": "accepted", "reason": "the pool is released in December"},
    "record_capacity": _BLOCK | {"ends": "2027-03-01T00:00Z", "machines": 4, "hourly": "98.32"},
    "ask_quotes": {"machine": "H100:8", "length": "7d", "region": "us-east-1"},
    "preview_purchase": {"quote": 7, "team": "nlp"},
    "buy_quote": {"quote": 7, "ceiling": "4000", "team": "nlp"},
    "grant_purchase": {"binding": "0123456789ab"},
    "refuse_purchase": {"reason": "not this quarter"},
    "withdraw_purchase": {"nothing_bought": True},
    "cancel_purchase": {"at_most": "250"},
    "check_policy": {"files": _FILES},
    "explain_policy": {"job_file": _JOB},
    "start_preview": {"files": _FILES},
    "preview_policy": {"files": _FILES},
    "apply_policy": {"files": _FILES, "reason": "more for nlp", "base": 12},
    "preview_rollback": {"version": 1},
    "rollback_policy": {"version": 1, "reason": "the limit was too low"},
    "set_person": {"roles": [], "teams": {"nlp": "member"}},
    "create_token": {"scopes": ["read", "jobs"], "expires_days": 90, "label": "nightly runs"},
    "create_own_token": {"scopes": ["read"], "expires_days": 30, "label": "notebook"},
    "set_watch": {"trigger": "below", "gpu": ["H100:8"], "capacity_type": ["spot"], "price": "2.00"},
    "end_launch": {"ran_seconds": 5400},
    "judge_slurm": {"user": "mia", "team": "nlp", "gres": "gpu:h100:2", "nodes": 2, "minutes": 600},
}

PROBLEM: Mapping[str, Any] = {
    "type": "urn:gpubroker:problem:invalid_input",
    "title": "invalid input",
    "status": 422,
    "detail": "body.max_duration: Field required",
    "kind": "invalid_input",
    "hint": "",
    "where": "",
    "problems": [],
    "exit_code": 2,
    "request_id": "5f0c2d1e8a9b7c6d",
}
