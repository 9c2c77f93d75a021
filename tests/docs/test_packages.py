"""The picture of the packages in ``broker/README.md``."""

import re
from pathlib import Path

BROKER = Path(__file__).parents[2] / "broker"


def test_the_picture_shows_every_folder_with_code() -> None:
    picture = (BROKER / "README.md").read_text("utf-8").split("```\nbroker/\n")[1].split("```")[0]
    shown = set()
    for package, inner, single in re.findall(r"(\w+)/(?: *\{([\w, ]+)\}|(\w+))?", picture):
        shown.add(package)
        shown |= {f"{package}/{name}" for name in (*inner.split(", "), single) if name}
    folders = {file.parent.relative_to(BROKER) for file in BROKER.rglob("__init__.py")}
    assert shown == {
        str(folder) for folder in folders if 1 <= len(folder.parts) <= 2 and folder.parts[0] != "public"
    } | {"public"}
