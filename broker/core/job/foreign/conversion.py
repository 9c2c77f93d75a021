"""What the converters share: the job file that they make, and how they name accelerators and memory."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import canonical, cut_cards, mig_profile

_SLICE = re.compile(  # NVIDIA MIG: 3g.20gb; AMD: cpx_nps4
    r"(?:^|[-_.])(?:(?:mig-)?(?:\d+c\.)?\d+g\.\d+gb|[dqct]px(?:[-_]nps\d)?\b)", re.IGNORECASE
)
_TENSTORRENT = re.compile(r"(?:tenstorrent\b|[np][13][05]0[a-d]?\b|wormhole|blackhole|grayskull)", re.IGNORECASE)


@dataclass
class Conversion:
    """A job file as plain data, and a sentence for each thing that it could not carry over."""

    job: dict[str, Any] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def resource(self, key: str, value: object) -> None:
        """Set a key under `resources:`."""
        self.job.setdefault("resources", {})[key] = value

    def variable(self, name: str, value: str | None) -> None:
        """Set a variable; without a value it is a secret, which the submitter's environment has."""
        if value is None:
            self.job.setdefault("secrets", []).append(name)
        else:
            self.job.setdefault("envs", {})[name] = value

    def gpus(self, count: int, model: str | None, asked: str, vendor: str = "nvidia") -> None:
        """Request accelerators. ``model``: as the other program calls it; ``asked``: the line that requests them.
        Raises `InvalidInput` for cards of Tenstorrent, which nobody rents here."""
        model = model and self.whole_model(model, asked)
        name = (_slice_name(model) or accelerator_name(model)) if model else None
        if name and mig_profile(name) and count > 1:
            self.lose(
                f"{asked}: a program sees one MIG slice, so that one is requested: `num_nodes: {count}` starts more"
            )
            count = 1
        if name is None and model and _TENSTORRENT.match(model):
            hint = f"write the card that the job needs instead, such as `H100:{count}`"
            raise InvalidInput(f"{asked}: cards of Tenstorrent are not supported", hint=hint)
        if name is None:
            problem = "names no model" if not model else f"names a model that is not known here ({model})"
            accepts = (
                f"any {vendor.upper()} GPU of 16 GB or more is accepted: write the one that the job needs, such as "
                f"`{'MI300X' if vendor == 'amd' else 'H100'}:{count}`"
            )
            self.lost.append(f"{asked} {problem}; {accepts}")
        self.resource("accelerators", f"{name or f'{vendor}:16GB+'}:{count}")

    def whole_model(self, model: str, asked: str) -> str:
        """The model without the name of a slice that is unknown here, which is noted; empty if it names that alone."""
        if known := _slice_name(model):
            return known
        if part := _SLICE.search(model):
            self.lose_share(asked)
            return model[: part.start()]
        return model

    def whole_cards(self, amount: float, asked: str) -> int:
        """The number of cards to request; that a part of a card becomes a whole one is noted."""
        count = ceil(amount)
        if count != amount:
            self.lose_share(asked)
        return count

    def lose_share(self, asked: str) -> None:
        """Note that parts of cards become whole ones. ``asked``: the line that requests them."""
        self.lose(f"{asked}: each part of a card becomes a whole card; a share such as `L4:0.25` requests a part")

    def command_of_the_image(self) -> str:
        """A command in the place of the image's own, which is not known here."""
        self.lose("the command is the image's own: write it into `run:`")
        return "echo 'write the command of the image here' >&2; exit 1"

    def rename_variables(self, script: str, prefix: str, names: Mapping[str, str]) -> str:
        """The script with the other program's variables by their names here; those that there are not are noted."""
        unknown = sorted(set(re.findall(rf"\b{prefix}_\w+", script)) - names.keys())
        if unknown:
            addresses = "the addresses of the nodes are in $SKYPILOT_NODE_IPS"
            self.lose(f"variables that are not set here: {', '.join(unknown)} ({addresses})")
        return re.sub(rf"\b{prefix}_\w+", lambda match: names.get(match[0], match[0]), script)

    def lose(self, *sentences: str) -> None:
        """Note what is not carried over, each sentence once."""
        self.lost += [sentence for sentence in sentences if sentence not in self.lost]


def _slice_name(model: str) -> str | None:
    """The MIG slice that the model names, with its card or without; None for other models."""
    cut = mig_profile(model)
    if cut is None:
        return None
    name = accelerator_name(model) if cut[0] else cut[1]
    return name if name and (cut_cards(cut[1]) if name == cut[1] else mig_profile(name)) else None


def accelerator_name(model: str) -> str | None:
    """``NVIDIA-A100-SXM4-80GB``, ``nvidia-tesla-t4`` or ``a100`` as gpubroker calls it; None if it is not known."""
    short = re.sub(r"^(?:nvidia|tesla|geforce)[-_ ]+(?:tesla[-_ ]+)?", "", model.strip(), flags=re.IGNORECASE)
    for name in (short, re.sub(r"(?i)[-_](?:sxm\d?|pcie|hbm\d\w*|nvl)\b", "", short), re.split(r"[-_ ]", short)[0]):
        try:
            return canonical(name)
        except UnknownName:
            continue
    return None


def job_name(name: object) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(name)).strip("-._")[:63] or "job"


def gibibytes(amount: float) -> str:
    """A minimum of memory in the form of job files."""
    return f"{amount:.4g}GB" if amount >= 1 else f"{max(round(amount * 1024), 1)}MB"


def shell_command(words: Sequence[object]) -> str:
    """The words as a command line; the script itself if they are ``sh -c SCRIPT``."""
    texts = [str(word) for word in words]
    script = re.match(r"(?:/(?:usr/)?bin/)?(?:ba|z|da)?sh (-[a-z]*c) ", " ".join(texts)) if len(texts) == 3 else None
    if script is None:
        return shlex.join(texts)
    return f"set -e\n{texts[2]}" if "e" in script[1] else texts[2]
