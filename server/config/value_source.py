"""Kafka's numbers for the source and the type of a setting's value, with words for people.

Source: Apache Kafka, DescribeConfigsResponse.java.
"""

from __future__ import annotations

import enum
from typing import Self


class ConfigSource(enum.IntEnum):
    """The source of a value in DescribeConfigs. On the wire: values never change."""

    words: str
    """What people read in place of the number."""

    def __new__(cls, number: int, words: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.words = words
        return member

    UNKNOWN = 0, "unknown"
    DYNAMIC_TOPIC_CONFIG = 1, "topic"
    DYNAMIC_BROKER_CONFIG = 2, "broker, while running"
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3, "all brokers, while running"
    STATIC_BROKER_CONFIG = 4, "broker's configuration"
    DEFAULT_CONFIG = 5, "default"
    DYNAMIC_BROKER_LOGGER_CONFIG = 6, "logger"
    DYNAMIC_CLIENT_METRICS_CONFIG = 7, "client metrics"
    DYNAMIC_GROUP_CONFIG = 8, "group"

    @classmethod
    def of(cls, number: int) -> Self:
        """Returns the source with this number; UNKNOWN for one that only a later Kafka has."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


TYPES = (
    "unknown",
    "boolean",
    "string",
    "int",
    "short",
    "long",
    "double",
    "list",
    "class",
    "password",
)


def type_name(number: int) -> str:
    """Returns the name of a type of values."""
    return TYPES[number] if 0 <= number < len(TYPES) else TYPES[0]
