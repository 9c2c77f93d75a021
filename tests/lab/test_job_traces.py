"""Traces of public clusters as workloads, on made-up files in their formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from tests.lab.simulate import WhatIf, played
from tests.lab.simulate_report import document
from tests.lab.simulation.job_traces import TraceFormat, TraceJob, read_trace
from tests.lab.simulation.workload_file import read_workload
from tests.lab.workloads import policy_of

PHILLY = [
    {
        "status": "Pass",
        "vc": "aaaa",
        "jobid": "application_1",
        "user": "u1",
        "submitted_time": "2017-10-07 01:00:00",
        "attempts": [
            {
                "start_time": "2017-10-07 01:10:00",
                "end_time": "2017-10-07 02:10:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}],
            },
            {"start_time": "2017-10-07 02:20:00", "end_time": "2017-10-07 02:50:00", "detail": []},
        ],
    },
    {"vc": "aaaa", "submitted_time": "2017-10-07 01:00:00", "attempts": []},
    {
        "vc": "bbbb",
        "submitted_time": "2017-10-06 23:00:00",
        "attempts": [
            {"start_time": "2017-10-06 23:00:00", "end_time": "None", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}
        ],
    },
]
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:51:01,2020-06-09 19:51:01,3600,600
2,u2,vcB,0,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01,600,0
3,u2,vcB,16,64,2,CANCELLED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 20:41:27,7200,0
"""
ALIBABA = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-1,12000,16384,1,460,,LS,Running,100,4000,400
pod-2,12000,16384,8,1000,,Burstable,Succeeded,200,7200,200
pod-3,20000,65536,0,0,,LS,Running,300,400,300
pod-4,20000,65536,1,1000,,BE,Pending,500,600,
"""


def trace(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace"
    path.write_text(text, encoding="utf-8")
    return path


def test_philly(tmp_path: Path) -> None:
    found = read_trace(trace(tmp_path, json.dumps(PHILLY)), TraceFormat.PHILLY)
    assert found.jobs == (TraceJob("aaaa", 4, 1507338000, 5400, 600),)
    assert found.skipped == {"never started": 1, "without a recorded run": 1}


def test_helios(tmp_path: Path) -> None:
    found = read_trace(trace(tmp_path, HELIOS), TraceFormat.HELIOS)
    assert [(job.team, job.gpus, job.seconds, job.waited) for job in found.jobs] == [
        ("vcA", 1, 3600, 600),
        ("vcB", 16, 7200, 0),
    ]
    assert found.skipped == {"without GPUs": 1}


def test_alibaba(tmp_path: Path) -> None:
    found = read_trace(trace(tmp_path, ALIBABA), TraceFormat.ALIBABA)
    assert found.jobs == (TraceJob("LS", 1, 100, 3600, 300), TraceJob("Burstable", 8, 200, 7000, 0))
    assert found.skipped == {"without GPUs": 1, "never started": 1}


@pytest.mark.parametrize(
    ("form", "text", "where", "said"),
    [
        (TraceFormat.PHILLY, "[{]", "trace", "is not a philly trace"),
        (TraceFormat.PHILLY, '[{"vc": "a"}]', "trace, job 1", "'attempts'"),
        (TraceFormat.HELIOS, HELIOS.replace("16,64", "x,64"), "trace, job 3", "'x'"),
        (TraceFormat.ALIBABA, HELIOS, "trace, job 1", "'num_gpu'"),
        (TraceFormat.HELIOS, HELIOS.split("\n")[0] + "\n", "trace", "it is empty"),
        (TraceFormat.HELIOS, HELIOS.replace("16,64", "-16,64"), "trace, job 3", "-16 GPUs"),
        (TraceFormat.HELIOS, HELIOS.replace(",3600,", ",inf,"), "trace, job 1", "infinity"),
    ],
)
def test_another_file_is_refused_with_its_place(
    tmp_path: Path, form: TraceFormat, text: str, where: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        read_trace(trace(tmp_path, text), form)
    assert caught.value.where.endswith(where)


WORKLOAD = """\
workload: a trace
market: [{machine: "V100:1", capacity: owned, machines: 16, cost: $1}]
trace: {format: helios, file: trace, accelerator: V100, estimates: true}
"""


def test_a_trace_is_played_and_its_recorded_waiting_is_told(tmp_path: Path) -> None:
    trace(tmp_path, HELIOS)
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD, encoding="utf-8")
    workload = read_workload(path)
    found = played(workload, policy_of(), WhatIf(days=1, seed=1))
    assert found.faults == []
    assert {team: tally.finished for team, tally in found.teams.items()} == {"vcA": 1, "vcB": 1}
    assert found.teams["vcB"].waits[0] > 3500, "sixteen GPUs wait for the one that is taken"
    assert any("waiting as recorded: mean 0:05:00" in note for note in workload.notes)
    report = document(found, policy_of(), [], {})
    recorded = report["recorded"]
    assert (recorded["total"]["mean_s"], recorded["total"]["waited_share"]) == (300.0, 0.5)
    assert {team: waits["mean_s"] for team, waits in recorded["teams"].items()} == {"vcA": 600.0, "vcB": 0.0}
    assert (recorded["teams_agree"], recorded["gangs_agree"]) == (-1.0, -1.0), "then, the small one waited"
    assert [(gang["gpus"], gang["started"]) for gang in report["gangs"] if gang["recorded"]] == [
        ("1", 1),
        ("9 or more", 1),
    ]
    doubled = played(workload, policy_of(), WhatIf(days=1, seed=1, demand={"vcA": 3}))
    assert doubled.teams["vcA"].submitted == 3
    assert doubled.teams["vcB"].submitted == 1
    assert played(workload, policy_of(), WhatIf(days=1, seed=1, jobs=20)).teams["vcA"].submitted == 10


def test_a_workload_has_teams_or_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD.split("trace:")[0], encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        read_workload(path)
    assert "expected `teams` with their jobs, or a `trace`" in str(caught.value.problems)
