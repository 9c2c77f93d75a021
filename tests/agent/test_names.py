"""Names of files that a file system allows: in documents, in stores, and as people see them."""

import os

from hypothesis import given
from hypothesis import strategies as st

from broker.agent.names import escape_unprintable, from_text, is_one_line, to_text

NAMES = st.binary(min_size=1, max_size=255).map(os.fsdecode)


@given(NAMES)
def test_a_name_survives_a_document(name: str) -> None:
    text = to_text(name)
    assert from_text(text.encode().decode()) == name
    assert text == name or text.startswith("b")
    assert escape_unprintable(name).isprintable()


def test_a_text_of_a_person_may_have_any_script_and_no_control() -> None:
    assert is_one_line("ok\u00a0👩\u200d🔬 für 漢字")
    assert not any(map(is_one_line, ("a\nb", "\x1b[2J", "a\u2028b", "\u202eevil", "\udcff")))
