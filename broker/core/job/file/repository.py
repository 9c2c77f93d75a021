"""A Git repository as ``workdir``: as with SkyPilot, each machine fetches it before the job's own setup."""

import re
import shlex
from dataclasses import dataclass, replace

from broker.core.errors import did_you_mean

_KEYS = ("url", "ref")
_URL = re.compile(r"(?:https?://|ssh://|git://|file://|[\w.-]+@[\w.-]+:)[^\s-][^\s]*")
_WITH_PASSWORD = re.compile(r"https?://[^/]*@")
_MARK = "# workdir: a Git repository\n"
_FETCH_COMMANDS = re.compile(
    re.escape(_MARK) + r"git init --quiet \. && .* --quiet --depth 1 -- (.+) && git checkout .*\n"
)
_FETCHING_COMMIT = re.compile(
    re.escape(_MARK)
    + r"git init --quiet \. && .* fetch --quiet -- (.+); \} && git checkout --quiet --force (\w+) \|\| .*\n"
)
# A name does not begin with a dash, because Git would read it as an option.
_REF = re.compile(r"[^\s\-:~^?*\[\\][^\s:~^?*\[\\]{0,199}")


@dataclass(frozen=True, slots=True)
class Repository:
    """``ref``: a branch, a tag or a commit; None for the repository's default branch. ``commit``: the commit of ``ref``
    at submission; None if it was not looked up: then each attempt fetches the commit of ``ref`` at its start."""

    url: str
    ref: str | None = None
    commit: str | None = None

    def fetch_commands(self) -> str:
        """Shell commands that put the repository's files into the current folder, and exit the shell if they fail. They
        can be repeated. A variable ``GIT_TOKEN``, such as a secret of the job, is the password for an https address."""
        url, ref = shlex.quote(self.url), shlex.quote(self.ref or "HEAD")
        helper = '!f() { echo username=x-access-token; echo "password=$GIT_TOKEN"; }; f'
        # Over http the password would be sent unencrypted; over SSH none is used.
        uses_token = self.url.startswith("https://")
        token = f"${{GIT_TOKEN:+-c credential.helper={shlex.quote(helper)}}} " if uses_token else ""
        git = f"GIT_TERMINAL_PROMPT=0 git {token}"
        if self.commit is None:
            fetch, revision = f"{git}fetch --quiet --depth 1 -- {url} {ref}", "FETCH_HEAD"
        else:  # some servers do not serve a single commit
            by_commit = f"{git}fetch --quiet --depth 1 -- {url} {self.commit} 2>/dev/null"
            fetch, revision = f"{{ {by_commit} || {git}fetch --quiet -- {url} {ref}; }}", self.commit
        return f"{_MARK}git init --quiet . && {fetch} && git checkout --quiet --force {revision} || exit 1\n"


def repository_of_setup(setup: str | None) -> Repository | None:
    """The repository that the first command of a job's setup fetches, if its commit was not looked up yet; otherwise
    None."""
    if setup is None or (match := _FETCH_COMMANDS.match(setup)) is None:
        return None
    try:
        url, ref = shlex.split(match[1])
    except ValueError:
        return None
    fetched = Repository(url, None if ref == "HEAD" else ref)
    return fetched if setup.startswith(fetched.fetch_commands()) else None


def unpin(setup: str | None) -> str | None:
    """The setup as before `pin`, so that its branch or tag is looked up again; unchanged if no commit is pinned."""
    if setup is None or (match := _FETCHING_COMMIT.match(setup)) is None:
        return setup
    try:
        url, ref = shlex.split(match[1])
    except ValueError:
        return setup
    fetched = Repository(url, None if ref == "HEAD" else ref, match[2])
    commands = fetched.fetch_commands()
    return (
        replace(fetched, commit=None).fetch_commands() + setup.removeprefix(commands)
        if setup.startswith(commands)
        else setup
    )


def pin(setup: str, fetched: Repository, commit: str) -> str:
    """The setup, whose first command fetches ``fetched``, changed to fetch this commit."""
    return replace(fetched, commit=commit).fetch_commands() + setup.removeprefix(fetched.fetch_commands())


def repository(value: object) -> Repository:
    """A repository as ``workdir: {url: …, ref: …}`` names it. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError("expected a local folder, or a Git repository as {url: https://…, ref: main}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:40]!r}{did_you_mean(str(key), _KEYS)}; known: url, ref")
    url, ref = value.get("url"), value.get("ref")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise ValueError(f"expected the address of a Git repository, such as https://github.com/a/b; got {url!r}")
    if _WITH_PASSWORD.match(url):
        raise ValueError(
            "the password in the address would be stored with the job; leave it out, and give the token as"
            " a secret: `--secret GIT_TOKEN`"
        )
    if ref is not None and (not isinstance(ref, str) or not _REF.fullmatch(ref)):
        raise ValueError(f"ref: expected a branch, a tag or a commit, in quotes if it is a number; got {ref!r}")
    return Repository(url, ref)
