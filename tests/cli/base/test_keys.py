"""Keys on the command line: in arguments and files, in three forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.base.command_end import CommandFailed
from cli.base.keys import Form, keys_of, parse_key


def test_keys_come_from_arguments_and_a_file_each_once_in_any_form(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("b\n\na\nc d\n")

    assert keys_of(["a"], file, Form.TEXT) == [b"a", b"b", b"c d"]
    assert keys_of(["00ff"], None, Form.HEX) == [b"\x00\xff"]
    assert keys_of(["AP8="], None, Form.BASE64) == [b"\x00\xff"]


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="name a key"):
        keys_of([], None, Form.TEXT)
    with pytest.raises(CommandFailed, match="is not hexadecimal"):
        parse_key("0g", Form.HEX)
    with pytest.raises(CommandFailed, match="is not base64"):
        parse_key("?", Form.BASE64)
    with pytest.raises(CommandFailed, match="cannot read keys"):
        keys_of([], tmp_path, Form.TEXT)
