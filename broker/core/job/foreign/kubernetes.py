"""Jobs, CronJobs and Pods of Kubernetes. Read: the API reference of Kubernetes 1.31."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker.core.documents import read_documents
from broker.core.errors import InvalidInput
from broker.core.job.foreign.conversion import Conversion, gibibytes, job_name, shell_command
from broker.core.values.units import print_duration

_KINDS = ("Job", "CronJob", "Pod")
_GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu.shared")
_SLICE = "nvidia.com/mig-"
_MODELS = (
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator",
    "gpu.nvidia.com/class", "gpu.nvidia.com/model", "accelerator", "karpenter.k8s.aws/instance-gpu-name",
)  # fmt: skip
_INSTANCE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "": 1}
_WITHOUT_EFFECT = frozenset({"restartPolicy", "tolerations", "terminationGracePeriodSeconds", "enableServiceLinks",
                             "automountServiceAccountToken", "nodeSelector", "containers"})  # fmt: skip
_OF_CONTAINER = frozenset(
    {"name", "image", "command", "args", "env", "envFrom", "resources", "workingDir", "imagePullPolicy", "volumeMounts",
     "terminationMessagePath", "terminationMessagePolicy", "tty", "stdin"}
)  # fmt: skip
_MOST_DOCUMENTS = 50


def convert(text: str, file: str) -> Conversion:
    """The job file of the first Job, CronJob or Pod of a manifest. Raises `InvalidInput` if there is none, or its
    container has no command."""
    documents = [
        document.data for document in read_documents(text, file=file, kind="manifest", max_documents=_MOST_DOCUMENTS)
    ]
    manifest = next((document for document in documents if document.get("kind") in _KINDS), None)
    if manifest is None:
        kinds = ", ".join(str(document.get("kind")) for document in documents)
        raise InvalidInput(f"{kinds} cannot be converted; expected one of {', '.join(_KINDS)}", where=file)
    conversion = Conversion()
    others = [document for document in documents if document is not manifest]
    conversion.lose(*(f"{document.get('kind')} {_at(document, 'metadata').get('name', '')}" for document in others))
    metadata = _at(manifest, "metadata")
    conversion.job["name"] = job_name(metadata.get("name") or str(metadata.get("generateName", "job")).rstrip("-"))
    spec, pod = _at(manifest, "spec"), _at(manifest, "spec")
    template = _at(spec, "jobTemplate", "spec", "template") or _at(spec, "template") or manifest
    parts = [_at(part, "metadata", kind) for part in (manifest, template) for kind in ("labels", "annotations")]
    notes = {key: value for part in parts for key, value in part.items() if re.search("gpu|fraction", key.lower())}
    conversion.lose(*(f"{key}: {value}, of the pod" for key, value in notes.items()))
    if manifest["kind"] == "CronJob":
        conversion.lose(f"schedule: {spec.get('schedule')}; submit the job by cron, or by your own scheduler")
        spec = _at(spec, "jobTemplate", "spec")
    if manifest["kind"] != "Pod":
        _of_job(spec, conversion)
        pod = _at(spec, "template", "spec")
    containers = pod.get("containers") or []
    if not containers:
        raise InvalidInput("the manifest has no container", where=file)
    container = containers[0]
    conversion.lose(*(f"the container {container.get('name')}: a job runs one" for container in containers[1:]))
    initial = [container.get("name") for container in pod.get("initContainers") or []]
    conversion.lose(*(f"the initContainer {name}: write its command into `setup:`" for name in initial))
    _container(container, pod, conversion)
    known = _WITHOUT_EFFECT | {"initContainers", "volumes", "activeDeadlineSeconds"}
    conversion.lose(*(key for key in pod if key not in known), *(key for key in container if key not in _OF_CONTAINER))
    return conversion


def _at(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The mapping at that path; an empty one where there is none."""
    for key in path:
        below = value.get(key)
        value = below if isinstance(below, Mapping) else {}
    return value


def _of_job(spec: Mapping[str, Any], conversion: Conversion) -> None:
    if limit := spec.get("activeDeadlineSeconds"):
        conversion.job["max_duration"] = print_duration(timedelta(seconds=int(limit)))
    if (failures := spec.get("backoffLimit")) is not None:
        conversion.job["retry"] = {"failures": int(failures)}
    completions, parallelism = int(spec.get("completions") or 1), int(spec.get("parallelism") or 1)
    if (
        spec.get("completionMode") == "Indexed"
        and completions == parallelism > 1
        and _at(spec, "template", "spec").get("subdomain")
    ):
        conversion.job["num_nodes"] = completions  # ranks that talk to each other
        conversion.lose("JOB_COMPLETION_INDEX: the rank of a node is in $SKYPILOT_NODE_RANK")
    elif completions > 1:
        conversion.job["array"] = {"grid": {"JOB_COMPLETION_INDEX": list(range(completions))}, "parallel": parallelism}
    elif parallelism > 1:
        conversion.lose(f"parallelism: {parallelism} pods of one work queue; write an `array:` with as many tasks")
    if spec.get("suspend"):
        conversion.lose("suspend: true")


def _container(container: Mapping[str, Any], pod: Mapping[str, Any], conversion: Conversion) -> None:
    if image := container.get("image"):
        conversion.resource("image_id", f"docker:{image}")
    _convert_machine(container, pod, conversion)
    _environment(container, conversion)
    mounts = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts") or []}
    for volume in pod.get("volumes") or []:
        name, kinds = volume.get("name"), [key for key in volume if key != "name"]
        if name in mounts and kinds != ["emptyDir"]:
            conversion.lose(
                f"the volume {name} ({', '.join(kinds)}) at {mounts[name]}: `file_mounts:` take buckets and folders"
            )
    words: Sequence[object] = [*(container.get("command") or []), *(container.get("args") or [])]
    command = re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", shell_command(words)) if words else ""
    if not words:
        command = "echo 'write the command of the image here' >&2; exit 1"
        conversion.lose("the command is the image's own: write it into `run:`")
    folder = container.get("workingDir")
    conversion.job["run"] = (f"cd {folder}\n" if folder else "") + command.strip("\n") + "\n"


def _amount(quantity: object) -> float:
    """``2``, ``0.5`` or ``500m``."""
    text = str(quantity)
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def _convert_machine(container: Mapping[str, Any], pod: Mapping[str, Any], conversion: Conversion) -> None:
    limits = {**_at(container, "resources", "requests"), **_at(container, "resources", "limits")}
    selector = {**_required_labels(pod), **_at(pod, "nodeSelector")}
    instance = next((str(selector.pop(key)) for key in _INSTANCE if key in selector), None)
    if "nvidia.com/gpu.shared" in limits:
        conversion.lose_share(f"nvidia.com/gpu.shared: {limits['nvidia.com/gpu.shared']}")
    names = [name for name in limits if name in _GPU_RESOURCES or name.startswith(_SLICE)]
    gpus = [(name, amount) for name in names if _amount(amount := limits.pop(name))]
    for name, amount in gpus[:1]:
        count = conversion.whole_cards(_amount(amount), f"{name}: {amount}")
        model = next((str(selector.pop(key)) for key in _MODELS if key in selector), None)
        if name.startswith(_SLICE):
            profile = name.removeprefix(_SLICE)
            model = profile if model is None else model if profile in model else f"{model}-{profile}"
        if instance is None or model is not None:
            conversion.gpus(count, model, f"{name}: {count}", name.partition(".")[0])
    conversion.lose(*(f"{name}: {amount}: a job has GPUs of one kind" for name, amount in gpus[1:]))
    if instance is not None:
        conversion.resource("instance_type", instance)
    if (cpus := limits.pop("cpu", None)) is not None:
        amount = _amount(cpus)
        conversion.resource("cpus", int(amount) if amount.is_integer() else amount)
    if (memory := limits.pop("memory", None)) is not None:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)", str(memory))
        if match is not None:
            conversion.resource("memory", gibibytes(float(match[1]) * _BYTES[match[2]] / 2**30))
    if (disk := limits.pop("ephemeral-storage", None)) is not None:
        conversion.lose(f"ephemeral-storage: {disk}: `disk_size:` under `resources:` sets the disk of rented machines")
    conversion.lose(*(f"{name}: {amount}" for name, amount in limits.items()))
    conversion.lose(*(f"nodeSelector {key}={value}" for key, value in selector.items()))


def _required_labels(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The labels of nodes that an affinity requires, where one value is allowed."""
    terms = _at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution").get(
        "nodeSelectorTerms"
    )
    rows = [row for term in terms or [] for row in term.get("matchExpressions") or []]
    return {
        row["key"]: row["values"][0]
        for row in rows
        if row.get("operator") == "In" and len(row.get("values") or []) == 1
    }


def _environment(container: Mapping[str, Any], conversion: Conversion) -> None:
    for variable in container.get("env") or []:
        name, source = variable.get("name"), _at(variable, "valueFrom")
        if "secretKeyRef" in source:
            conversion.variable(name, None)
        elif source:
            conversion.lose(f"the variable {name}, from {', '.join(source)}")
        else:
            conversion.variable(name, str(variable.get("value") if variable.get("value") is not None else ""))
    for source in container.get("envFrom") or []:
        conversion.lose(f"envFrom {', '.join(source)}: name the variables under `envs:` or `secrets:`")
