"""Where a setting's value comes from and what kind of value it is: Kafka's numbers, in words.

Source: Apache Kafka, DescribeConfigsResponse.java.
"""

from __future__ import annotations

import enum
from typing import Self


class ConfigSource(enum.IntEnum):
    """Of DescribeConfigs. On the wire: values never change."""

    words: str
    """For people."""

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
        """UNKNOWN for a number that a later Kafka has."""
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
    """The type of a setting's value."""
    return TYPES[number] if 0 <= number < len(TYPES) else TYPES[0]
