"""Reads and sets the levels of this process's loggers while it runs; a restart resets them.

Levels have Kafka's names. Source: KIP-412; Apache Kafka, LoggingController.java.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from protocol.wire.error_codes import ErrorCode
from server.config.changes import ConfigChange, Operation
from server.topics.topic import TopicRefused

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """Returns the effective level of each logger, by its name."""
    names = [name for name, each in logging.root.manager.loggerDict.items() if _is_logger(each)]
    return {name: _level_name(_logger(name)) for name in (ROOT, *sorted(names))}


def fault_of_levels(changes: Sequence[ConfigChange]) -> TopicRefused | None:
    """Returns why these levels cannot be set, in Kafka's words; None if they can."""
    known = logger_levels()
    for change in changes:
        fault = _fault_of(change, is_known=change.name in known)
        if fault is not None:
            return fault
    return None


def set_levels(changes: Sequence[ConfigChange]) -> None:
    """Set levels, or reset them to those of the parent loggers.

    Args:
        changes: `fault_of_levels` found no fault with them.
    """
    for change in changes:
        is_set = change.operation == Operation.SET
        _logger(change.name).setLevel(LEVELS[change.value or ""] if is_set else logging.NOTSET)


def _fault_of(change: ConfigChange, *, is_known: bool) -> TopicRefused | None:
    if change.operation not in (Operation.SET, Operation.DELETE):
        verb = Operation(change.operation).name
        text = f"{verb} operation is not allowed for the BROKER_LOGGER resource"
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    if not is_known:
        text = f"Logger {change.name} does not exist!"
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)
    if change.operation == Operation.DELETE:
        if change.name != ROOT:
            return None
        text = "Removing the log level of the root logger is not allowed"
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    if change.value in LEVELS:
        return None
    text = (
        f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log"
        f" level. Valid log levels are {', '.join(sorted(LEVELS))}"
    )
    return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _is_logger(found: object) -> bool:
    """Returns whether this is a logger, not a placeholder for the common prefix of names."""
    return isinstance(found, logging.Logger)


def _level_name(logger: logging.Logger) -> str:
    """Returns the name of the effective level, or of the next lower one that has a name."""
    level = logger.getEffectiveLevel()
    return max((number, name) for name, number in LEVELS.items() if number <= max(level, 5))[1]
