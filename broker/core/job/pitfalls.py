"""Warnings about likely mistakes in a job file: failures that go unnoticed, and secrets in plain text."""

import re
from collections.abc import Iterator
from itertools import filterfalse

from broker.core.job.jobs import Job

_COMMAND_PREFIX = r"(?:\s*(?:!|[{}]|do|done|else|fi|then|time|\w+\+?=\S*)(?=\s|$))*\s*"
# No command, or one whose failure is harmless or makes the next command fail.
_HARMLESS = re.compile(
    _COMMAND_PREFIX + r"(?:(?:[.:]|\[+|alias|case|cat|cd|date|declare|df|echo|elif|env|exit|export|for|free|hostname|if"
    r"|kill|local|ls|mkdir|module|nvidia-smi|printf|pwd|readonly|return|rm|set|shopt|sleep|source|test|trap|true|ulimit"
    r"|umask|unset|until|wait|which|while|yes)(?:\s.*)?)?",
    re.DOTALL,
)
_IGNORED_SYNTAX = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|(?<!\S)#.*|\\\n|\d*[<>]&[\d-]+|&>>?|\$\([^()]*\)|`[^`]*`""")
_CONTINUED_LINE = re.compile(r"(&&|\|[|&]?)\s*\n")
_IN_BACKGROUND = re.compile(r"[^\n;&]*(?<!&)&(?!&)")
_TOO_COMPLEX = re.compile(r"<<|\$\?|PIPESTATUS|\besac\b|\w\s*\(\)|\btrap\b.*\bERR\b")  # it may handle failures itself
_EXITS_ON_ERROR = re.compile(r"\bset\s+-[a-zA-Z]*e|\berrexit\b")

_SECRET_NAME = re.compile(r"(?:.*_)?(?:TOKEN|API_?KEY|SECRET|PASSWORD|PASSPHRASE|(?:ACCESS|PRIVATE|SECRET)_KEY)", re.I)
_PLAIN_VALUE = re.compile(r"\s*(?:[\d.]*|true|false|none|null|[<\[$/].*)\s*", re.I | re.DOTALL)  # [PAD], a file's path
_SECRET_VALUE = re.compile(
    r"\b(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza)[\w-]{12,}|-----BEGIN [A-Z ]*PRIVATE KEY"
)

_REFERENCE = re.compile(r"\$([A-Za-z_]\w*|\{\w+(:-[^}]*)?\})")  # to another variable


def pitfalls(job: Job) -> Iterator[str]:
    """One sentence for each, with the fix. No value of a secret is in them."""
    variable_sets = [job.envs]
    if job.array is not None:
        variable_sets += [
            *job.array.rows,
            *({name: value} for name, values in job.array.grid.items() for value in values),
        ]
    secret_names = sorted(
        {name for variables in variable_sets for name, value in variables.items() if _is_secret(name, value)}
    )
    secret_names += ["a word of `run:` or `setup:`"] if _SECRET_VALUE.search(f"{job.run}\n{job.setup}") else []
    if secret_names:
        yield (
            f"warning: {', '.join(secret_names)} looks like a secret, and is stored with the job, for all who may "
            "see it: take"
            " it out of the file, list the variable's name under `secrets:`, and export its value before you submit"
        )
    for name in sorted(
        {name for variables in variable_sets for name, value in variables.items() if _REFERENCE.fullmatch(value)}
    ):
        yield (
            f"{name} is set to these very words, because nothing is replaced in `envs:`: `--env {name}` takes the value"
            f" of your shell, `secrets: [{name}]` one that nobody else may see"
        )
    yield from _unseen_failures(job.run)


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_VALUE.search(value) or (_SECRET_NAME.fullmatch(name) and not _PLAIN_VALUE.fullmatch(value)))


def _unseen_failures(run: str) -> Iterator[str]:
    """A warning about the first command whose failure would go unnoticed; none for a script too complex to judge."""
    text = (
        ""
        if _TOO_COMPLEX.search(run)
        else _IN_BACKGROUND.sub("", _CONTINUED_LINE.sub(r"\1 ", _IGNORED_SYNTAX.sub(" ", run)))
    )
    statements = [
        part.split("&&") for part in re.split(r"[\n;()]+", text) if re.sub(_COMMAND_PREFIX, "", part, count=1)
    ]
    pipes_fail = "pipefail" in run
    pipes = [[part.split("|") for part in group if "||" not in part] for group in statements]
    not_last = [command for group in pipes[:-1] for part in group for command in part]
    piped = [command for group in pipes for part in group for command in part[:-1]]
    if not _EXITS_ON_ERROR.search(run) and (command := next(filterfalse(_HARMLESS.fullmatch, not_last), None)):
        option = "-eo pipefail" if piped and not pipes_fail else "-e"
        consequence = "the commands after it still run, and only the last one decides whether the job succeeds"
    elif not pipes_fail and (command := next(filterfalse(_HARMLESS.fullmatch, piped), None)):
        option, consequence = "-o pipefail", "nobody notices, because only the last command of a pipe decides"
    else:
        return
    command_text = _SECRET_VALUE.sub("…", " ".join(re.sub(_COMMAND_PREFIX, "", command, count=1).split()[:2]))[:40]
    yield f"if `{command_text}` in `run:` fails, {consequence}: to fail there, begin `run:` with `set {option}`"
