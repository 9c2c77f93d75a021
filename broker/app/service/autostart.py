"""Starts the reconciler at login, so that jobs continue after a restart of this machine: a user unit of systemd, or an
agent of launchd. The file is private, because variables may hold logins."""

import os
import plistlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.app.jobs import background
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, StoreProblem
from broker.settings import FILE, Settings, setting_variables, variable

UNIT, LABEL = "gpubroker.service", "gpubroker.reconcile"
_BOOTED = Path("/run/systemd/system")  # exists where systemd manages the machine
_LINGER = Path("/var/lib/systemd/linger")  # a file for each user whose units start with the machine
_RESTART_SECONDS = 60


@dataclass(frozen=True, slots=True)
class AutostartState:
    """``file``: that starts the reconciler at login, if ``on``. ``running``: whether a reconciler runs now.
    ``lingering``: whether it starts with the machine, without a login; null: not known, as on macOS."""

    on: bool
    file: Path
    running: bool
    lingering: bool | None


def autostart_file() -> Path | None:
    """The file of the unit or agent, whether or not it exists; None if neither systemd nor launchd is here."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    if not _BOOTED.is_dir() or shutil.which("systemctl") is None:
        return None
    configuration = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configuration) if configuration else home / ".config") / "systemd" / "user" / UNIT


def state(broker: Broker) -> AutostartState:
    """Raises `InvalidInput` if neither systemd nor launchd is here."""
    file = _file(broker)
    lingering = None if file.suffix == ".plist" else (_LINGER / broker.account.user).exists()
    return AutostartState(file.exists(), file, background.is_running(broker), lingering)


def turn_on(broker: Broker) -> AutostartState:
    """Write the file for the settings of this process; replaces an earlier one. Raises as `state`, and `StoreProblem`
    for a folder that cannot be written."""
    file, command = _file(broker), [*broker.registries.command, "reconcile"]
    environment, folder = _environment(broker.settings), Path.cwd() if Path(FILE).exists() else Path.home()
    write = plist if file.suffix == ".plist" else unit
    try:
        _replace(file, write(command, environment, folder))
        if file.suffix != ".plist":
            wants = _wants(file)
            wants.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                wants.symlink_to(file)
    except OSError as error:
        raise StoreProblem(f"cannot be written: {error.strerror}", where=str(error.filename or file)) from error
    _reload(file, on=True)
    return state(broker)


def turn_off(broker: Broker) -> AutostartState:
    """Remove what `turn_on` made. A reconciler that runs continues under systemd. Raises as `turn_on`."""
    file = _file(broker)
    _reload(file, on=False)
    try:
        for path in (_wants(file), file):
            path.unlink(missing_ok=True)
        for folder in (_wants(file).parent, file.parent):
            with suppress(OSError):  # others have files there
                folder.rmdir()
    except OSError as error:
        raise StoreProblem(f"cannot be removed: {error.strerror}", where=str(error.filename or file)) from error
    _reload(file, on=False)
    return state(broker)


def unit(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> bytes:
    """A user unit of systemd. Jobs of this machine outlive the reconciler that started them, hence ``KillMode``."""
    variables = "".join(f"Environment={_quote(f'{name}={value}')}\n" for name, value in environment.items())
    words = " ".join(_quote(word).replace("$", "$$") for word in command)
    place = str(folder).replace("%", "%%")
    text = (
        "[Unit]\nDescription=gpubroker: continues jobs after a restart of this machine\n\n"
        f"[Service]\nExecStart={words}\nWorkingDirectory={place}\n{variables}"
        f"KillMode=process\nRestart=on-failure\nRestartSec={_RESTART_SECONDS}\n\n"
        "[Install]\nWantedBy=default.target\n"
    )
    return text.encode()


def plist(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> bytes:
    """An agent of launchd; never tried on macOS. Jobs outlive it, hence ``AbandonProcessGroup``."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "EnvironmentVariables": dict(environment),
            "WorkingDirectory": str(folder),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": _RESTART_SECONDS,
            "AbandonProcessGroup": True,
        }
    )


def _quote(word: str) -> str:
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("\n", "\\n")):
        word = word.replace(character, escaped)
    return f'"{word}"'


def _environment(settings: Settings) -> dict[str, str]:
    """The settings that this process has from its environment, and where programs are."""
    own = setting_variables(os.environ) | {variable("home"): str(settings.home.absolute())}
    return {"PATH": os.environ.get("PATH", os.defpath), **own}


def _file(broker: Broker) -> Path:
    if (file := autostart_file()) is None:
        hint = f"start this at login in another way: `{' '.join(broker.registries.command)} reconcile`"
        raise InvalidInput("neither systemd nor launchd manages this machine", hint=hint)
    return file


def _wants(file: Path) -> Path:
    """The link by which systemd starts the unit, as `systemctl --user enable` makes it."""
    return file.parent / "default.target.wants" / UNIT


def _replace(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    draft.replace(file)


def _reload(file: Path, *, on: bool) -> None:
    """Tell systemd or launchd. Without it, the change takes effect at the next login, so errors are ignored."""
    domain = f"gui/{os.getuid()}"
    commands = [["systemctl", "--user", "daemon-reload"]]
    if file.suffix == ".plist":
        commands = [["launchctl", "bootout", f"{domain}/{LABEL}"]]
        commands += [["launchctl", "bootstrap", domain, str(file)]] if on else []
    for command in commands:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603  # no input from others
