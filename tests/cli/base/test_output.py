"""Commands show progress on the right stream and leave the other alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rich.progress import TextColumn

from cli.base.output import progress_bars
from tests.harness.terminal import Terminal


def test_what_is_printed_to_a_file_gets_there_while_a_bar_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    with (tmp_path / "output").open("w") as output:
        stderr = os.fdopen(os.dup(shown.descriptor), "w")
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr(sys, "stdout", output)
        with progress_bars(TextColumn("{task.description}")) as bars:
            bars.add_task("how far it is")
            sys.stdout.write("the result\n")
        monkeypatch.undo()
        stderr.close()
        text = shown.text()

    assert (tmp_path / "output").read_text() == "the result\n"
    assert "how far it is" in text
    assert "the result" not in text


def test_no_bar_is_shown_where_standard_error_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_bars(TextColumn("{task.description}")) as bars:
        bars.add_task("how far it is")

    assert capsys.readouterr() == ("", "")
