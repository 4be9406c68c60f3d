"""`kompakt features` against a broker: what it shows, changes and refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.features.change import Change, set_levels, show_features
from tests.harness.served_broker import ServedBroker, serving_broker


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    async with serving_broker(tmp_path) as broker:
        yield broker


def address(served: ServedBroker) -> str:
    host, port = served.broker.addresses["PLAINTEXT"]
    return f"{host}:{port}"


async def change(
    served: ServedBroker,
    *texts: str,
    how: Change = Change.UPGRADE,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    return await set_levels(address(served), texts, how, dry_run=dry_run, as_json=as_json)


def sparse_level(served: ServedBroker) -> int:
    return served.broker.features.levels["sparse.log"]


async def test_each_feature_has_a_line_also_one_that_is_off(
    served: ServedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    await served.broker.features.set_levels({"sparse.log": 0})
    assert await show_features(address(served), as_json=False) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split() == ["FEATURE", "LEVEL", "SUPPORTED"]
    assert [line.split() for line in lines] == [
        ["group.version", "1", "0", "to", "1"],
        ["sparse.log", "0", "0", "to", "1"],
        ["transaction.version", "2", "0", "to", "2"],
    ]


async def test_json_has_the_epoch_of_the_levels(
    served: ServedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    await served.broker.features.set_levels({"sparse.log": 0})
    assert await show_features(address(served), as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["epoch"] == served.broker.features.epoch > 0
    assert {"name": "sparse.log", "level": 0, "supported": [0, 1]} in shown["features"]


async def test_a_level_goes_down_and_up(
    served: ServedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await change(served, "sparse.log=0", how=Change.SAFE_DOWNGRADE) == 0
    assert sparse_level(served) == 0
    assert await change(served, "sparse.log=1", "group.version=1", as_json=True) == 0
    assert sparse_level(served) == 1
    down, _, up = capsys.readouterr().out.partition("\n")
    assert down == "sparse.log is 0"
    levels = {"sparse.log": 1, "group.version": 1}
    assert json.loads(up) == {"levels": levels, "is_changed": True}


async def test_a_dry_run_changes_nothing(
    served: ServedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    for as_json in (False, True):
        how = Change.UNSAFE_DOWNGRADE
        await change(served, "sparse.log=0", how=how, dry_run=True, as_json=as_json)
    assert sparse_level(served) == 1
    sentence, _, answer = capsys.readouterr().out.partition("\n")
    assert "nothing was changed" in sentence
    assert json.loads(answer)["is_changed"] is False


@pytest.mark.parametrize(
    ("texts", "code", "sentence"),
    [
        (["sparse.log"], EXIT_USAGE, "write NAME=VALUE"),
        (["sparse.log=high"], EXIT_USAGE, "a level is a number"),
        (["sparse.log=-1"], EXIT_USAGE, "a level is a number"),
        (["sparse.log=40000"], EXIT_USAGE, "a level is a number"),
        (["sparse.log=0", "sparse.log=1"], EXIT_USAGE, "sparse.log is given twice"),
        (["sparse.log=0"], EXIT_FAILED, "Can't downgrade"),
        (["sparse.log=2"], EXIT_FAILED, "only supports versions 0-1"),
        (["sparse.log=1", "dense.log=1"], EXIT_FAILED, "does not support this feature"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_a_sentence(
    served: ServedBroker, texts: list[str], code: int, sentence: str
) -> None:
    with pytest.raises(CommandFailed, match=sentence) as failed:
        await change(served, *texts)
    assert failed.value.exit_code == code
    assert sparse_level(served) == 1
