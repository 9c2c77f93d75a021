"""`gpubroker init`: write a job file from answers to questions, or from a file of another program."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

EXAMPLES = examples(
    "gpubroker init",
    "gpubroker init train.yaml --defaults",
    "gpubroker init --from train.sbatch",
    "gpubroker init train.yaml --from kubernetes-job.yaml",
)


@dataclass(frozen=True, slots=True)
class JobFileQuestion:
    """One question, and the key of its answer in the file. ``default``: used for an empty answer; without a default,
    the key is omitted."""

    path: Sequence[str]
    text: str
    default: str = ""


QUESTIONS = (
    JobFileQuestion(("name",), "Name of the job", "my-training"),
    JobFileQuestion(("run",), "Command", "python train.py"),
    JobFileQuestion(("workdir",), "Folder with the code", "."),
    JobFileQuestion(("resources", "accelerators"), "GPUs of the machine, such as L4 or H100:8 (empty: none)"),
    JobFileQuestion(("work",), "Amount of work, such as 48h on A100-80GB:8 (empty: unknown)"),
    JobFileQuestion(("deadline",), "Deadline, such as 60h or 2030-01-31T18:00Z (empty: none)"),
    JobFileQuestion(("max_cost",), "Maximum cost, such as $900 (empty: no limit)"),
    JobFileQuestion(
        ("checkpoint", "every"), "Checkpoint interval, such as 10m (empty: no checkpoints, so no spot machines)"
    ),
    JobFileQuestion(("team",), "Team whose budget pays (empty: none)"),
)


def init(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The file to write.")] = Path("job.yaml"),
    defaults: Annotated[bool, typer.Option("--defaults", help="Write the default answers without asking.")] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Convert a Slurm script, a Kubernetes Job, a dstack task or a `docker run` command.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a job file from answers to questions, or from a file of another program. Nothing is submitted.

    Each answer is checked at once. With --from, what cannot be carried over is printed. SkyPilot's task files need no
    conversion.
    """
    terminal = Terminal.of(context)
    if file.exists() and not force:
        other = f", such as `gpubroker init {source.stem}.yaml --from {source}`" if source is not None else ""
        raise InvalidInput(
            "the file exists already", where=str(file), hint=f"choose another name{other}, or add --force"
        )
    answers, lost = _convert(source) if source is not None else (_answers(terminal, defaults=defaults), [])
    text = job_file_text(answers)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", where=str(file)) from error
    from broker.app.jobs.documents import WrittenJobFile

    message = f"Wrote {file}. To see its cost: gpubroker plan {file}"
    left = [f"Not carried over from {source}:", *(f"  - {sentence}" for sentence in lost)] if lost else []
    if source is not None and "outputs" not in answers:
        left.append("Files that the job writes are lost with its machine unless it names them: `outputs: [FOLDER]`.")
    terminal.result(WrittenJobFile(file=file, text=text, lost=lost), lambda: [*left, message])


def _convert(source: Path) -> tuple[dict[str, Any], list[str]]:
    from broker.app.jobs.job_input import convert_file

    conversion = convert_file(source)
    return conversion.job, conversion.lost


def _answers(terminal: Terminal, *, defaults: bool) -> dict[str, Any]:
    if not defaults and not terminal.asks:
        raise InvalidInput("no terminal for the questions", hint="add --defaults to write the default answers")
    answers: dict[str, Any] = {}
    for question in QUESTIONS:
        answers = _with_answer(answers, question, question.default) if defaults else _ask(terminal, answers, question)
    return answers


def job_file_text(answers: dict[str, Any]) -> str:
    """The job file of these answers."""
    from broker.core.documents import print_document

    head = "# yaml-language-server: $schema=job-file.json  (gpubroker schema job-file > job-file.json)\n"
    return head + print_document(answers)


def _ask(terminal: Terminal, answers: dict[str, Any], question: JobFileQuestion) -> dict[str, Any]:
    """The answers and the one to this question, which is repeated until the answer is valid."""
    while True:
        typed = typer.prompt(question.text, default=question.default, show_default=bool(question.default), err=True)
        extended = _with_answer(answers, question, str(typed).strip())
        try:
            _check_answers(extended)
        except InvalidInput as error:
            terminal.say(*(problem.message for problem in error.problems))
            continue
        return extended


def _with_answer(answers: dict[str, Any], question: JobFileQuestion, typed: str) -> dict[str, Any]:
    if not typed:
        return answers
    *parents, key = question.path
    if not parents:
        return answers | {key: typed}
    return answers | {parents[0]: {**answers.get(parents[0], {}), key: typed}}


def _check_answers(answers: dict[str, Any]) -> None:
    from broker.core.job.file import parse_job

    parse_job(job_file_text({"run": "true"} | answers), file="answers", now=datetime.now(UTC))
