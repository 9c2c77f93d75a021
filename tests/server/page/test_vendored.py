"""The files of others that browsers load: those of the manifest, unchanged, each with its licence."""

import tomllib
from hashlib import sha256

from broker.server.page.render import STATIC

VENDORED = STATIC / "vendor"
MANIFEST = "MANIFEST.toml"
OURS = {"charts.js", "icon.svg", "page.js", "style.css", "vendor"}


def test_each_file_of_others_is_in_the_manifest_with_version_licence_and_hash() -> None:
    listed = tomllib.loads((VENDORED / MANIFEST).read_text(encoding="utf-8"))["files"]
    licences = {one["licence_file"] for one in listed}
    assert {one.name for one in VENDORED.iterdir()} == {MANIFEST} | {one["name"] for one in listed} | licences
    for one in listed:
        assert sha256((VENDORED / one["name"]).read_bytes()).hexdigest() == one["sha256"], one["name"]
    for one in listed:
        if one["name"].endswith(".js"):
            assert one["version"] in (VENDORED / one["name"]).read_text(encoding="utf-8"), one["name"]
    assert {one.name for one in STATIC.iterdir()} == OURS, "what is not ours belongs into the folder with the manifest"
