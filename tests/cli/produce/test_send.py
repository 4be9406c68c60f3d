"""What a user is shown while no broker acknowledges a record."""

from __future__ import annotations

import pytest

from cli.base.command_end import CommandFailed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python, when it is imported
def test_a_line_says_once_that_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.produce import send

    lines: list[str] = []
    monkeypatch.setattr(send, "complain", lines.append)
    monkeypatch.setattr(send, "SILENCE_SECONDS", 0.0)
    sent = send.Sent(stall_seconds_max=0.1)
    sent.begin(1)

    with pytest.raises(CommandFailed, match="acknowledged nothing"):
        sent.wait_for_all()

    (line,) = lines
    assert line.startswith("no broker has acknowledged a record for 0 s: waiting for ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_line_comes_before_a_shorter_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.produce import send

    monkeypatch.setattr(send, "complain", pytest.fail)
    sent = send.Sent(stall_seconds_max=0.01)
    sent.begin(1)

    with pytest.raises(CommandFailed, match="acknowledged nothing"):
        sent.wait_for_all()
