"""Which files a snapshot leaves out."""

from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.engines.snapshots.collect import collect


def names(root: Path) -> list[str]:
    return [one.entry.path for one in collect(root).files]


def write(root: Path, files: dict[str, str]) -> Path:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return root


def test_patterns_of_git_hold_in_their_own_folder_and_below(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.log\n/build/\n", "a.log": "", "a.py": "", "build/x": "", "src/build/y": ""})
    write(tmp_path, {"src/.gitignore": "!keep.log\n/only-here\n", "src/keep.log": "", "src/only-here": ""})
    write(tmp_path, {"only-here": "", "src/deep/b.log": ""})
    assert names(tmp_path) == [".gitignore", "a.py", "only-here", "src/.gitignore", "src/build/y", "src/keep.log"]


def test_what_lies_in_an_ignored_folder_is_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "data/\n", "data/x": ""})
    (tmp_path / "data" / "out").symlink_to("/etc/passwd")
    assert names(tmp_path) == [".gitignore"]


def test_git_itself_and_what_its_repository_excludes_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {".git/config": "", ".git/info/exclude": "mine\n", "mine": "", "a": "", "sub/.git": "gitdir: x"})
    assert names(tmp_path) == ["a"]


def test_a_skyignore_replaces_gitignore(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.bin\n", ".skyignore": "*.tmp\n", "a.bin": "", "a.tmp": ""})
    assert names(tmp_path) == [".gitignore", ".skyignore", "a.bin"]


@pytest.mark.parametrize("other", [".gitignore", ".skyignore"])
def test_ours_has_the_last_word(tmp_path: Path, other: str) -> None:
    write(tmp_path, {other: "*.bin\n", ".gpubrokerignore": "!model.bin\nnotes\n", "model.bin": "", "x.bin": ""})
    write(tmp_path, {"notes": "", "deep/notes": "", "deep/.gitignore": "!notes\n"})
    assert sorted(names(tmp_path)) == sorted([".gpubrokerignore", other, "deep/.gitignore", "model.bin"])


def test_an_environment_of_this_machine_is_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path, {"a": "", "env/pyvenv.cfg": "", "env/bin/x": ""})
    assert names(tmp_path) == ["a"]
    assert collect(tmp_path).left_out == ("env",)


def test_secrets_and_installed_files_are_left_out_by_default_and_named(tmp_path: Path) -> None:
    key = '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}'
    left = {".env": "TOKEN=x", "node_modules/x": "", "src/wandb/run": "", "account.json": key, "prod.env": "TOKEN=x"}
    left |= {"deep/.config/gcloud/x": "", "deep/.env.production": "", "deep/.ssh/config": "", "id_ed25519_work": ""}
    pem = "-----BEGIN EC PRIVATE KEY-----\nMII"
    left |= {"key.PEM": pem, "certs/full.crt": pem, "sa.yaml": f"key: |\n  {pem}", "k.ppk": "PuTTY-User-Key-File-3: x"}
    left |= {"mine.asc": "-----BEGIN PGP PRIVATE KEY BLOCK-----", "PROD.ENV": "TOKEN=x", "app/secrets.toml": "x = 1"}
    left |= {"rclone.conf": "pass = x", "release.JKS": "", ".cargo/credentials.toml": "", "sub/.m2/settings.xml": ""}
    kept = {".cargo/config.toml": "", "settings.xml": ""}
    kept |= {"a": "", ".env.example": "", "data.json": "{}", "src/env.py": "", "deep/.config/app.json": "{}"}
    kept |= {"ca.crt": "-----BEGIN CERTIFICATE-----", "notes.txt": "where the PRIVATE KEY----- is"}
    write(tmp_path, {**left, **kept, "src/__pycache__/a.pyc": ""})
    names_left = {"node_modules", "src/wandb", "deep/.config/gcloud", "deep/.ssh", *left} - {
        *("node_modules/x", "src/wandb/run", "deep/.config/gcloud/x", "deep/.ssh/config")
    }
    assert (set(names(tmp_path)), set(collect(tmp_path).left_out)) == (set(kept), names_left)
    write(tmp_path, {".gpubrokerignore": "!.env\nwandb\n!account.json\n"})
    assert set(names(tmp_path)) == {".env", ".gpubrokerignore", "account.json", *kept}
    assert set(collect(tmp_path).left_out) == names_left - {".env", "account.json", "src/wandb"}


def test_a_pattern_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "!\n"})
    with pytest.raises(InvalidInput, match="ignore file"):
        collect(tmp_path)
