"""An error in the settings is reported with its file and line, or its variable, and with a suggestion."""

from datetime import timedelta
from pathlib import Path

import pytest

from broker import settings
from broker.core.errors import InvalidInput
from broker.settings import check_names, read_settings


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The user's file and that of the working directory; neither exists yet."""
    found = tmp_path / "config.toml", tmp_path / "gpubroker.toml"
    monkeypatch.setattr(settings, "settings_files", lambda: found)
    return found


def refused() -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        check_names(read_settings(), ["aws", "gcp"], ["local", "slurm"])
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('\nhoome = "x"\n', 2, "hoome: is not a setting; did you mean 'home'?"),
        ('[notifi]\nme = "x"\n', 1, "notifi: is not a setting; did you mean 'notify'?"),
        ('[prices.gcp]\nevery = "5m"\n[prices.aws]\nevry = "5m"\n', 4, "did you mean 'every'?"),
        ('[prices.aws]\nevery = "5 parsec"\n', 2, "prices.aws.every: expected a duration"),
        ('prices.aws.evry = "5m"\n', 1, "did you mean 'every'?"),
        ('home = "x"\nserve = {listn = "off"}\n', 2, "serve.listn: is not a setting; did you mean 'listen'?"),
        ("[charges]\nzebra = 1\n", 2, "known here: alert_above, alert_over"),
        ("[providers.awss]\n", 1, "unknown provider 'awss'; did you mean 'aws'?"),
        ("[engines.slurmm]\na = 1\n", 1, "unknown engine 'slurmm'; did you mean 'slurm'?"),
        ('home = "x"\n[serve\n', 2, "is not valid TOML"),
    ],
)
def test_the_file_and_line_of_a_mistake(files: tuple[Path, Path], text: str, line: int, said: str) -> None:
    files[1].write_text(text)
    error = refused()
    assert f"{files[1]}:{line}:" in str(error)
    assert said in str(error)
    assert [problem.line for problem in error.problems] == [line]


def test_each_mistake_is_told_where_it_stands(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    files[0].write_text("[charges]\nalert_ovr = 0.1\n")
    files[1].write_text('[prices.aws]\nevery = "5m"\n\n[serve]\ntokn = "secret"\n')
    monkeypatch.setenv("GPUBROKER_SERVE__LISTN", "off")
    text = str(refused())
    assert f"{files[0]}:2: charges.alert_ovr" in text
    assert f"{files[1]}:5: serve.tokn" in text
    assert "GPUBROKER_SERVE__LISTN: is not a setting; did you mean 'LISTEN'?" in text
    assert "secret" not in text


def test_a_variable_beside_a_mistake_in_a_file_is_not_blamed(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files[1].write_text('[prices.gcp]\nevry = "5m"\n')
    monkeypatch.setenv("GPUBROKER_PRICES__AWS__EVERY", "5m")
    assert f"{files[1]}:2: prices.gcp.evry" in str(refused())


def test_a_later_file_wins_setting_by_setting(files: tuple[Path, Path]) -> None:
    files[0].write_text('[prices.aws]\nevery = "5m"\ntimeout = "40s"\n[prices.gcp]\nevery = "1h"\n')
    files[1].write_text('[prices.aws]\nevery = "7m"\n')
    prices = read_settings().prices
    assert [prices["aws"].every, prices["aws"].timeout] == [timedelta(minutes=7), timedelta(seconds=40)]
    assert prices["gcp"].every == timedelta(hours=1)


def test_an_empty_variable_is_as_if_it_were_not_set(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_HOME", "")
    assert read_settings().home.is_absolute(), "not the folder in which the command happens to run"
