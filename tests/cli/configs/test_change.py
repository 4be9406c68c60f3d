"""`kompakt configs set`: it shows the result, also if the broker starts again because of the change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, CommandFailed
from cli.base.topic_facts import BROKER_RESOURCE
from cli.configs import change
from cli.configs.change import Change, Operation, change_configs
from cli.configs.target import Target

NAME = "broker.fenced.by"
BEFORE, AFTER = {NAME: {"value": "before"}}, {NAME: {"value": "after"}}
AWAY = CommandFailed(EXIT_UNREACHABLE, "the broker closed the connection")


class Broker:
    """Answers requests for settings in this order, over any connection."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.connections = 0

    @asynccontextmanager
    async def connected(self, bootstrap: str) -> AsyncIterator[Broker]:
        self.connections += 1
        yield self

    async def settings(self, *_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, CommandFailed):
            raise answer
        return answer


async def changed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> int:
    async def nothing(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(change, "connected", broker.connected)
    monkeypatch.setattr(change, "_settings", broker.settings)
    monkeypatch.setattr(change, "alter", nothing)
    monkeypatch.setattr(change, "_check_names", nothing)
    monkeypatch.setattr(change, "RESTART_PAUSE_SECONDS", 0.0)
    target = Target(resource_type=BROKER_RESOURCE, name="1")
    wanted = [Change(name=NAME, operation=Operation.SET, value="after")]
    return await change_configs("b:1", target, wanted, as_json=True)


@pytest.mark.parametrize(
    ("answers", "connections"),
    [
        pytest.param([BEFORE, AFTER], 1, id="over_the_same_connection"),
        pytest.param([BEFORE, AWAY, AFTER], 2, id="once_it_has_started_again"),
        pytest.param([BEFORE, AWAY, AWAY, AWAY, AFTER], 4, id="that_takes_a_while"),
    ],
)
async def test_the_result_is_read(
    answers: list[Any],
    connections: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = Broker(*answers)

    assert await changed(broker, monkeypatch) == 0

    assert broker.connections == connections
    assert '"after"' in capsys.readouterr().out


async def test_a_broker_that_does_not_come_back_at_this_address_has_made_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change, "RESTART_SECONDS_MAX", 0.0)

    with pytest.raises(CommandFailed) as failed:
        await changed(Broker(BEFORE, AWAY), monkeypatch)

    assert failed.value.exit_code == EXIT_UNREACHABLE
    assert str(failed.value) == (
        "broker 1: the broker has made the change and started again; it no longer answers at b:1"
    )


async def test_another_failure_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CommandFailed(EXIT_FAILED, "not authorized")

    with pytest.raises(CommandFailed, match="not authorized"):
        await changed(Broker(BEFORE, refused), monkeypatch)
    with pytest.raises(CommandFailed, match="not authorized"):
        await changed(Broker(BEFORE, AWAY, refused), monkeypatch)
