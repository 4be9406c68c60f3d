"""Clients read and set the levels of loggers over the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

SET, DELETE, APPEND = 0, 1, 2
LOGGERS = 8
DYNAMIC_BROKER_LOGGER = 6
NAME = "tests.server.config.test_broker_loggers.mine"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)


async def alter(
    served: ServedBroker,
    change: tuple[int, str, str | None],
    *,
    node: str = "1",
    validate_only: bool = False,
) -> tuple[int, str | None]:
    operation, name, value = change
    config = AlterableConfig(config_operation=operation, name=name, value=value)
    asked = AlterConfigsResource(resource_type=LOGGERS, resource_name=node, configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(asked,), validate_only=validate_only)
    (answer,) = (await served.call(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message


async def described(served: ServedBroker, *names: str) -> list[DescribeConfigsResourceResult]:
    asked = DescribeConfigsResource(
        resource_type=LOGGERS, resource_name="1", configuration_keys=names or None
    )
    request = DescribeConfigsRequest(resources=(asked,))
    (result,) = (await served.call(request, 4, DescribeConfigsResponse)).results
    assert result.error_code == ErrorCode.NONE
    return list(result.configs)


async def test_each_logger_has_its_effective_level(tmp_path: Path, logger: logging.Logger) -> None:
    async with serving_broker(tmp_path) as served:
        names = [row.name for row in await described(served)]
        assert names[0] == "root"
        assert names[1:] == sorted(names[1:])
        assert {NAME, "server.topics.topics"} <= set(names)
        for level, shown in ((logging.WARNING, "WARN"), (35, "WARN"), (1, "TRACE")):
            logger.setLevel(level)
            (row,) = await described(served, NAME)
            assert (row.value, row.config_source) == (shown, DYNAMIC_BROKER_LOGGER)
            assert not row.read_only


async def test_a_level_is_set_and_reset_while_the_broker_runs(
    tmp_path: Path, logger: logging.Logger
) -> None:
    async with serving_broker(tmp_path) as served:
        before = logger.getEffectiveLevel()
        for level, number in (("DEBUG", 10), ("TRACE", 5), ("FATAL", 50)):
            assert await alter(served, (SET, NAME, level)) == (ErrorCode.NONE, None)
            assert logger.level == number
        assert await alter(served, (SET, NAME, "INFO"), validate_only=True) == (0, None)
        assert logger.level == logging.CRITICAL
        assert await alter(served, (DELETE, NAME, None)) == (ErrorCode.NONE, None)
        assert logger.getEffectiveLevel() == before


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            (SET, NAME, "loud"),
            ErrorCode.INVALID_CONFIG,
            "to loud as it is not a supported log level",
        ),
        ((SET, "no.such", "INFO"), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ((DELETE, "no.such", None), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        ((APPEND, NAME, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        ((DELETE, "root", None), ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
    ],
)
async def test_an_invalid_level_is_refused_in_kafkas_words(
    tmp_path: Path,
    logger: logging.Logger,
    change: tuple[int, str, str | None],
    code: ErrorCode,
    message: str,
) -> None:
    async with serving_broker(tmp_path) as served:
        answered, text = await alter(served, change)
        assert (answered, message in (text or "")) == (code, True)
        assert logger.level == logging.NOTSET


async def test_another_brokers_loggers_are_not_ours(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        code, message = await alter(served, (SET, "root", "DEBUG"), node="7")
    assert code == ErrorCode.INVALID_REQUEST
    assert message == "Unexpected node id. Expected 1, but received 7"
