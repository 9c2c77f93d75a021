"""Warnings about likely mistakes in a job file: failures that go unnoticed, and secrets in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import filterfalse

from broker.core.job.jobs import Job

_BEFORE_A_COMMAND = r"(?:\s*(?:!|[{}]|do|done|else|fi|then|time|\w+\+?=\S*)(?=\s|$))*\s*"
# No command, or one whose failure is harmless or makes the next command fail.
_HARMLESS = re.compile(
    _BEFORE_A_COMMAND
    + r"(?:(?:[.:]|\[+|alias|case|cat|cd|date|declare|df|echo|elif|env|exit|export|for|free|hostname|if"
    r"|kill|local|ls|mkdir|module|nvidia-smi|printf|pwd|readonly|return|rm|set|shopt|sleep|source|test|trap|true|ulimit"
    r"|umask|unset|until|wait|which|while|yes)(?:\s.*)?)?",
    re.DOTALL,
)
_NO_WORDS = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|(?<!\S)#.*|\\\n|\d*[<>]&[\d-]+|&>>?|\$\([^()]*\)|`[^`]*`""")
_GOES_ON = re.compile(r"(&&|\|[|&]?)\s*\n")
_IN_BACKGROUND = re.compile(r"[^\n;&]*(?<!&)&(?!&)")
_UNCLEAR = re.compile(r"<<|\$\?|PIPESTATUS|\besac\b|\w\s*\(\)|\btrap\b.*\bERR\b")  # it may handle failures itself
_STOPS_AT_FAILURES = re.compile(r"\bset\s+-[a-zA-Z]*e|\berrexit\b")

_SECRET_NAME = re.compile(r"(?:.*_)?(?:TOKEN|API_?KEY|SECRET|PASSWORD|PASSPHRASE|(?:ACCESS|PRIVATE|SECRET)_KEY)", re.I)
_NO_SECRET = re.compile(r"\s*(?:[\d.]*|true|false|none|null|[<\[$/].*)\s*", re.I | re.DOTALL)  # [PAD], a file's path
_SECRET_VALUE = re.compile(
    r"\b(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza)[\w-]{12,}|-----BEGIN [A-Z ]*PRIVATE KEY"
)

_REFERENCE = re.compile(r"\$([A-Za-z_]\w*|\{\w+(:-[^}]*)?\})")  # to another variable


def pitfalls(job: Job) -> Iterator[str]:
    """One sentence for each, with the fix. No value of a secret is in them."""
    sets = [job.envs]
    if job.array is not None:
        sets += [*job.array.rows, *({name: value} for name, values in job.array.grid.items() for value in values)]
    found = sorted({name for one in sets for name, value in one.items() if _is_secret(name, value)})
    found += ["a word of `run:` or `setup:`"] if _SECRET_VALUE.search(f"{job.run}\n{job.setup}") else []
    if found:
        yield (
            f"warning: {', '.join(found)} looks like a secret, and is stored with the job, for all who may see it: take"
            " it out of the file, list the variable's name under `secrets:`, and export its value before you submit"
        )
    for name in sorted({name for one in sets for name, value in one.items() if _REFERENCE.fullmatch(value)}):
        yield (
            f"{name} is set to these very words, because nothing is replaced in `envs:`: `--env {name}` takes the value"
            f" of your shell, `secrets: [{name}]` one that nobody else may see"
        )
    yield from _unseen_failures(job.run)


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_VALUE.search(value) or (_SECRET_NAME.fullmatch(name) and not _NO_SECRET.fullmatch(value)))


def _unseen_failures(run: str) -> Iterator[str]:
    """A warning about the first command whose failure would go unnoticed; none for a script too complex to judge."""
    text = "" if _UNCLEAR.search(run) else _IN_BACKGROUND.sub("", _GOES_ON.sub(r"\1 ", _NO_WORDS.sub(" ", run)))
    statements = [one.split("&&") for one in re.split(r"[\n;()]+", text) if re.sub(_BEFORE_A_COMMAND, "", one, count=1)]
    pipes_fail = "pipefail" in run
    pipes = [[one.split("|") for one in each if "||" not in one] for each in statements]
    earlier = [command for each in pipes[:-1] for one in each for command in one]
    inside = [command for each in pipes for one in each for command in one[:-1]]
    if not _STOPS_AT_FAILURES.search(run) and (command := next(filterfalse(_HARMLESS.fullmatch, earlier), None)):
        option = "-eo pipefail" if inside and not pipes_fail else "-e"
        what = "the commands after it still run, and only the last one decides whether the job succeeds"
    elif not pipes_fail and (command := next(filterfalse(_HARMLESS.fullmatch, inside), None)):
        option, what = "-o pipefail", "nobody notices, because only the last command of a pipe decides"
    else:
        return
    shown = _SECRET_VALUE.sub("…", " ".join(re.sub(_BEFORE_A_COMMAND, "", command, count=1).split()[:2]))[:40]
    yield f"if `{shown}` in `run:` fails, {what}: to fail there, begin `run:` with `set {option}`"
