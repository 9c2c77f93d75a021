"""Other schedulers before a running server: SkyPilot's own policy classes, a real Lua, and a real slurmctld."""

import copy
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.app.access.people import add, give_role
from broker.app.service.health import Pulses
from broker.cli.service.serve import _build_http_server
from broker.core.access.people import TeamRole, TokenScope
from broker.core.actors import Role
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.money import Money
from broker.ledger.entries import faults
from broker.server.api.transport import Transport
from tests.actors import ROOT
from tests.server.test_admission import NODE, POLICY
from tests.server.world import Company, new_world
from tests.slurm_cluster import SlurmCluster, missing, running_cluster

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]

ROOT_FOLDER = Path(__file__).parents[2]
PLUGIN = ROOT_FOLDER / "examples" / "service" / "job_submit.lua"
KUBERNETES = Offer(
    provider="kubernetes", region="lab", zone=None, instance_type="H100:2", accelerator="H100", count=2,
    capacity_type=CapacityType.ON_DEMAND, price=Money.usd("0.1"), as_of=NODE.as_of, source="kubernetes",
    availability=Availability.AVAILABLE, engine="skypilot", cpus=16, memory_gib=64,
)  # fmt: skip
# What Slurm gives a plugin, as far as ours asks; without Slurm around it.
AROUND = """
slurm = {SUCCESS = 0, ERROR = -1}
function slurm.log_user(form, ...) io.stdout:write(string.format(form, ...), "\\n") end
dofile(PLUGIN)
local job = {name = NAME, account = "nlp", partition = "gpu", tres_per_node = "gres:gpu:h100:2", min_nodes = 1,
             max_nodes = 4294967294, time_limit = 60, user_name = WHO, environment = {}, array_inx = ARRAY}
for field, value in pairs(MORE) do job[field] = value end
if CHANGE then
   print(slurm_job_modify(MORE, {}, {}, 1000))
else
   local said = slurm_job_submit(job, {}, 0)
   io.stdout:write(tostring(said), " ", tostring(job.admin_comment), "\\n")
   if JUDGED then print(job.max_nodes, job.requeue) end
end
"""


class ServedGate:
    """A server of the company, with a token of the scheduler before it."""

    def __init__(self, world: Company, url: str) -> None:
        self.world, self.url, broker = world, url, world.broker
        add(broker, "cluster", by=ROOT, service=True)
        give_role(broker, "cluster", Role.GATE, by=ROOT)
        self.token = world.token("cluster", TokenScope.ADMISSION)
        broker.store.activate_policy({"test.yaml": POLICY}, by="adam")
        now = broker.clock.now()
        offers = [replace(NODE, as_of=now), replace(KUBERNETES, as_of=now)]
        for one in offers:
            broker.store.record_poll(one.source, started=now, finished=now, offers=[one])

    def launches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.world.get("/launches", "mia").json()["launches"]
        return found


@contextmanager
def served(world: Company) -> Iterator[str]:
    stop, at = threading.Event(), "127.0.0.1:0"
    server = _build_http_server(world.broker, ROOT, Pulses(), at, Transport(), lambda _: None)
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    try:
        yield server.url
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[ServedGate]:
    world = new_world(tmp_path)
    with served(world) as url:
        yield ServedGate(world, url)
    world.broker.close()


def curl_file(gate: ServedGate, folder: Path) -> Path:
    file = folder / "gpubroker.curl"
    file.write_text(f'header = "Authorization: Bearer {gate.token}"\n')
    file.chmod(0o600)
    return file


def submitted(
    gate: ServedGate, folder: Path, who: str = "mia", name: str = "train", url: str | None = None, array: str = "",
    around: str = "MORE = {}", arrays: str = "",
) -> str:  # fmt: skip
    """What the plugin says in a Lua without Slurm."""
    lua = shutil.which("lua5.4") or shutil.which("lua")
    if lua is None or shutil.which("curl") is None:
        pytest.skip("not installed: lua5.4, curl (Debian packages)")
    script = folder / "around.lua"
    words = ", ".join(map(json.dumps, (str(PLUGIN), who, name, array)))
    given = f"PLUGIN, WHO, NAME, ARRAY = {words}\n{around}\n"
    script.write_text(given + AROUND)
    variables = {
        "GPUBROKER_ADMISSION": f"{url or gate.url}/api/v1/admission/slurm",
        "GPUBROKER_CURL": str(curl_file(gate, folder)),
        "GPUBROKER_ARRAYS": arrays,
    }
    done = subprocess.run(
        [lua, str(script)], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_the_lua_plugin_gives_slurm_the_brokers_verdict(gate: ServedGate, tmp_path: Path) -> None:
    assert submitted(gate, tmp_path).startswith("0 outside:slurm-")
    assert [(one["user"], one["team"], one["gpus"]) for one in gate.launches()] == [("mia", "nlp", 2)]
    assert "vic has no role that allows submitting jobs" in submitted(gate, tmp_path, who="vic")
    assert submitted(gate, tmp_path, array="0-1").endswith("-1 nil\n"), "nobody holds the money of its tasks"
    admitted = submitted(gate, tmp_path, array="7%1", arrays="yes", around="MORE = {}; JUDGED = true")
    assert admitted.startswith("0 outside:slurm-")
    assert admitted.endswith("\n1\t1\n"), "a task that runs again is asked for again"
    assert "nlp" in submitted(gate, tmp_path, array="0-99%1", arrays="yes"), "a hundred tasks are not one"
    hostile = "a\"; touch /tmp/owned; ' $(id) \\ \n"
    assert submitted(gate, tmp_path, name=hostile).startswith("0 outside:slurm-"), "a name is a name"
    assert "nlp" in submitted(gate, tmp_path), "the third exceeds the budget"
    assert len(gate.launches()) == 2


def test_a_job_of_slurm_cannot_become_larger_than_it_was_judged(gate: ServedGate, tmp_path: Path) -> None:
    judged = submitted(
        gate, tmp_path, around="MORE = {num_tasks = 64, ntasks_per_node = 1, requeue = 1}; JUDGED = true"
    )
    assert judged.endswith("\n1\t0\n"), "one node was judged, once"
    assert "--exclusive" in submitted(gate, tmp_path, around="MORE = {shared = 0}"), "every GPU of the node"
    unset = "time_limit = 4294967294, min_nodes = 4294967294, max_nodes = 4294967294, shared = 65534, requeue = 65534"
    assert submitted(gate, tmp_path, around=f"MORE = {{{unset}}}; CHANGE = true") == "0\n"
    for change in (
        "time_limit = 4294967295",
        "max_nodes = 8",
        'tres_per_task = "gres:gpu:8"',
        "shared = 0",
        "requeue = 1",
        'array_inx = "100"',
    ):
        assert submitted(gate, tmp_path, around=f"MORE = {{{change}}}; CHANGE = true").endswith("\n-1\n"), change


def test_without_an_answer_nobody_gets_gpus(gate: ServedGate, tmp_path: Path) -> None:
    gone = submitted(gate, tmp_path, url="http://127.0.0.1:9")
    assert gone == "gpubroker: the broker does not answer, so nobody gets GPUs now\n-1 nil\n"
    gate.token = "gpb_wrong"
    assert submitted(gate, tmp_path).endswith("-1 nil\n")


@pytest.fixture
def sky(gate: ServedGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """SkyPilot's policy over HTTP, as its API server has it; the token lies in a netrc file, not in the address."""
    if importlib.util.find_spec("sky") is None:
        pytest.skip("SkyPilot is not installed")
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login gpubroker password {gate.token}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    from sky import admin_policy

    return admin_policy.RestfulAdminPolicy(f"{gate.url}/api/v1/admission/skypilot")


def sky_request(config: dict[str, Any], cluster: str = "dev", name: str = "launch", who: str = "mia") -> Any:
    import sky
    from sky import admin_policy, models
    from sky.server.requests.request_names import AdminPolicyRequestName
    from sky.utils import config_utils

    return admin_policy.UserRequest(
        sky.Task.from_yaml_config(copy.deepcopy(config)),  # it takes the keys out
        config_utils.Config.from_dict({}),
        AdminPolicyRequestName(name),
        admin_policy.RequestOptions(cluster_name=cluster, idle_minutes_to_autostop=None, down=False, dryrun=False),
        user=models.User(id="abc", name=who),
    )


TASK = {"resources": {"accelerators": "H100:2"}, "run": "python train.py", "envs": {"A": "b"}}


def test_skypilots_own_policy_class_pins_what_was_judged(gate: ServedGate, sky: Any) -> None:
    changed = sky.apply(sky_request(TASK))
    (resources,) = changed.task.resources
    assert str(resources.cloud).lower() == "kubernetes"
    assert (resources.region, resources.accelerators, resources.use_spot) == ("lab", {"H100": 2}, False)
    (one,) = gate.launches()
    assert resources.labels == {"gpubroker-launch": one["id"].removeprefix("outside:")}
    assert changed.task.envs == {"A": "b"}, "the rest is as it was"
    assert sky.apply(sky_request(TASK)).task.to_yaml_config() == changed.task.to_yaml_config()
    assert len(gate.launches()) == 1, "asked again, it is not held twice"
    sky.apply(sky_request(TASK, name="optimize"))
    assert len(gate.launches()) == 1
    sky.apply(sky_request(TASK, cluster="other"))
    assert len(gate.launches()) == 2


def test_skypilot_refuses_what_the_broker_vetoes_and_what_it_cannot_ask(gate: ServedGate, sky: Any) -> None:
    from sky import admin_policy, exceptions

    with pytest.raises(exceptions.UserRequestRejectedByPolicy, match="vic has no role"):
        sky.apply(sky_request(TASK, who="vic"))
    long = {**TASK, "resources": {"accelerators": "H100:2", "labels": {"gpubroker-max-duration": "200h"}}}
    with pytest.raises(exceptions.UserRequestRejectedByPolicy, match="nlp") as refused:
        sky.apply(sky_request(long))
    assert gate.token not in str(refused.value), "whoever is refused reads the address"
    for address in ("http://127.0.0.1:9/", f"{gate.url}/api/v1/nothing"):
        with pytest.raises(exceptions.RestfulPolicyError):
            admin_policy.RestfulAdminPolicy(address).apply(sky_request(TASK))
    assert gate.launches() == []


@contextmanager
def guarded_cluster(gate: ServedGate) -> Iterator[SlurmCluster]:
    """A Slurm that asks the gate, with its prolog and epilog, as `examples/service` says it."""
    if lacking := missing():
        pytest.skip(lacking)  # without Debian's Slurm; in CI, which installs it, a failure
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o711)
    curl = str(curl_file(gate, folder))

    def here(name: str, **settings: str) -> Path:
        text = (PLUGIN.parent / name).read_text().replace("http://127.0.0.1:9464", gate.url)
        text = text.replace("/etc/slurm/gpubroker.curl", curl)
        lines = "".join(f"export {key}={value}\n" for key, value in settings.items())
        (folder / name).write_text(text.replace("launches=", f"{lines}launches=", 1) if settings else text)
        (folder / name).chmod(0o755)
        return folder / name

    plugin = here("job_submit.lua")
    plugin.write_text(plugin.read_text().replace('os.getenv("GPUBROKER_ARRAYS")', '"yes"'))
    scripts = {name: here(f"slurm_{name}.sh", SLURM_CONF=f"{folder}/slurm.conf") for name in ("prolog", "epilog")}
    add(gate.world.broker, "root", by=ROOT)
    give_role(gate.world.broker, "root", TeamRole.MEMBER, "nlp", by=ROOT)
    more = "JobSubmitPlugins=lua\nPluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm\n"
    more += f"EpilogSlurmctld={scripts['epilog']}\nPrologSlurmctld={scripts['prolog']}\n"
    with running_cluster(folder, nodes=("one",), more=more) as cluster:
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


def test_a_real_slurmctld_asks_before_it_takes_gpus(gate: ServedGate) -> None:
    store = gate.world.broker.store
    with guarded_cluster(gate) as cluster:
        cluster.run("sbatch", "--wrap", "true", "--output=/dev/null")  # no GPU, no question
        assert "no time limit" in refusal(cluster, "--gres=gpu:h100:2")
        assert "each node" in refusal(cluster, "--gpus=2", "--time=60")
        spoof = "x AdminComment=outside:slurm-0 RunTime=00:00:00 x"
        cluster.run(
            "sbatch", "--gres=gpu:h100:2", "--time=60", "--wrap", "sleep 2", "--output=/dev/null", "--comment", spoof
        )
        assert [one["user"] for one in gate.launches()] == ["root"]
        cluster.until(lambda: not gate.launches(), "the epilog reports the end")
        with store.reading() as look:
            spent = [one for one in look.all_entries() if one.account == "spent"]
        assert [Money.ZERO < one.amount < Money.usd("0.1") for one in spent] == [True]

        assert "nlp" in refusal(cluster, "--gres=gpu:h100:2", "--time=60", "--array=0-99%1")
        options = ("--gres=gpu:h100:1", "--time=30", "--output=/dev/null", "--parsable")
        number = cluster.run("sbatch", *options, "--array=0-2%1", "--wrap", "sleep 1").strip()
        most = 0

        def ended() -> bool:
            nonlocal most
            most = max(most, len(gate.launches()))
            return not cluster.run("squeue", "--noheader", f"--jobs={number}", "--states=PD,R,CF,CG").strip()

        cluster.until(ended, "all tasks of the array end")
        cluster.until(lambda: not gate.launches(), "the epilog reports the end of each")
        assert most == 1, "one at a time"
        with store.reading() as look:
            of_tasks = {one.tags.job_id for one in look.all_entries() if one.account == "spent"} - {
                spent[0].tags.job_id
            }
            assert faults(look.all_entries()) == []
        assert sorted(id.partition(".")[2] for id in of_tasks) == ["0", "1", "2"], "each task has paid for its time"

        kept = cluster.folder / "ran"
        number = cluster.run("sbatch", *options, "--array=5", "--hold", "--wrap", f"echo ran >> {kept}").strip()
        store.activate_policy({"test.yaml": POLICY.replace("$10", "$0.01")}, by="adam")
        cluster.run("scontrol", "release", number)
        cluster.until(lambda: "BeginTime" in cluster.run("squeue", "-h", "-j", number, "-o", "%T %r"), "it is put back")
        assert (gate.launches(), kept.exists()) == ([], False), "without money it does not begin"
        store.activate_policy({"test.yaml": POLICY}, by="adam")
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")
        cluster.until(kept.exists, "with money it does")
        cluster.until(lambda: not gate.launches(), "the epilog reports the end")


def refusal(cluster: SlurmCluster, *options: str) -> str:
    """What sbatch says to somebody whose job is not taken."""
    done = subprocess.run(
        ["sbatch", *options, "--wrap", "true", "--output=/dev/null"],
        env={**os.environ, **cluster.environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    return done.stderr
