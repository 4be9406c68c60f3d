"""Lines of several files or of standard input, with the progress of reading them."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.produce.input_lines import InputLines


def test_files_are_read_one_after_the_other_and_say_how_far(tmp_path: Path) -> None:
    for name, text in (("a", "one\ntwo\n"), ("b", "three")):
        (tmp_path / name).write_text(text)

    lines = InputLines([tmp_path / "a", tmp_path / "b"])
    assert (lines.read_bytes, lines.total_bytes) == (0, 13)
    seen = [(line, lines.read_bytes) for line in lines]

    assert seen == [(b"one\n", 4), (b"two\n", 8), (b"three", 13)]


def test_standard_input_from_a_file_says_how_much_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("read before\nleft\n")
    with (tmp_path / "a").open("rb") as file:
        file.readline()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=file, fileno=file.fileno))

        lines = InputLines([])

        assert lines.total_bytes == 5
        assert list(lines) == [b"left\n"]


def test_a_pipe_does_not_say_how_much_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, b"one\n")
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        lines = InputLines([])
        assert lines.total_bytes is None
        assert list(lines) == [b"one\n"]

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a").write_text("one\n")
    assert InputLines([tmp_path / "a", tmp_path / "pipe"]).total_bytes is None


def test_input_without_a_descriptor_has_no_known_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))

    assert InputLines([]).total_bytes is None
