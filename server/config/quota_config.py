"""The properties that say how quotas are measured.

Source: Apache Kafka, QuotaConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import INT, prop


@dataclass(frozen=True, kw_only=True)
class QuotaConfig:
    """The windows over which the rates of quotas are measured."""

    __slots__ = ()

    quota_window_num: int = prop(
        "quota.window.num",
        INT,
        default=11,
        at_least=1,
        dynamic=False,
        doc="The number of windows over which the rates of client quotas are measured: the current one"
        " and those before it.",
    )
    quota_window_size_seconds: int = prop(
        "quota.window.size.seconds",
        INT,
        default=1,
        at_least=1,
        unit="s",
        dynamic=False,
        doc="The length of such a window. A pause because of request_percentage is never longer.",
    )
    controller_quota_window_num: int = prop(
        "controller.quota.window.num",
        INT,
        default=11,
        at_least=1,
        dynamic=False,
        doc="The number of windows whose partitions a client with a controller_mutation_rate may create"
        " or delete at once.",
    )
    controller_quota_window_size_seconds: int = prop(
        "controller.quota.window.size.seconds",
        INT,
        default=1,
        at_least=1,
        unit="s",
        dynamic=False,
        doc="The length of such a window.",
    )
