"""The broker's configuration while it runs: what it was started with, and what was set since.

    /broker_configs/<node id>    {"<name>": "<value>", ...}   this broker's own
    /broker_configs/default      the same, for every broker of the cluster that has none of its own

Own before cluster-wide before the start's (`server/config.py`). Only properties that are declared
dynamic can be set; they take effect when the change is durable, and again at every start.

Source: KIP-226; Apache Kafka, DynamicBrokerConfig.scala.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from protocol.error_codes import ErrorCode
from server.config import BrokerConfig, known_properties
from server.config_changes import ConfigChange, Operation, overrides_after
from server.metadata_store import Compare, MetadataStore, Put
from server.topic import TopicRefused
from server.topic_defaults import topic_synonyms
from storage.config_property import ConfigError, properties_of

_log = logging.getLogger("server.broker_configs")

PREFIX = "/broker_configs/"
CLUSTER = ""
"""The name of what holds for all brokers, as clients give it."""


class BrokerConfigs:
    """Sole owner of what was set on the broker while it ran. Lives on the event loop."""

    __slots__ = (
        "_check", "_follow", "_lock", "_node_id", "_set", "_started_with", "_store", "config",
    )  # fmt: skip

    def __init__(self, store: MetadataStore, started_with: BrokerConfig, *, node_id: int) -> None:
        # Constant after construction
        self._store = store
        self._started_with = started_with
        self._node_id = node_id
        self._lock = asyncio.Lock()
        # State
        self._set: dict[str, dict[str, str]] = {CLUSTER: {}, str(node_id): {}}
        self.config = started_with
        """What holds now."""
        self._check: Callable[[BrokerConfig], None] = lambda _: None
        self._follow: Callable[[BrokerConfig], Awaitable[None]] | None = None

    @property
    def own(self) -> Mapping[str, str]:
        """What was set on this broker."""
        return self._set[str(self._node_id)]

    @property
    def cluster(self) -> Mapping[str, str]:
        """What was set for all brokers."""
        return self._set[CLUSTER]

    def names_set(self, name: str) -> AbstractSet[str]:
        """The properties that are set on one broker or, by `CLUSTER`, on all."""
        return self._set.get(name, {}).keys()

    async def open(self) -> None:
        """Read what was set before. What this release does not take is left out, and said."""
        for name in self._set:
            entry = await self._store.get(_key(name))
            stored = json.loads(entry.value) if entry else {}
            self._set[name] = {
                each: text for each, text in stored.items() if self._holds(each, text)
            }
        self.config = self._effective(self._set)

    def when_changed(
        self,
        follow: Callable[[BrokerConfig], Awaitable[None]],
        *,
        check: Callable[[BrokerConfig], None] = lambda _: None,
    ) -> None:
        """Have `follow` called with what holds, on the loop, after each change is durable.

        Args:
            check: says with a ConfigError why a change cannot be.
        """
        self._follow, self._check = follow, check

    async def alter(
        self,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> TopicRefused | None:
        """Change what is set on one broker or on all; durable and of effect when this returns.

        Args:
            name: this broker's number, or `CLUSTER`.
            replaces: whether what is not among the changes is no longer set.

        Returns:
            Why nothing was changed, or None.
        """
        if name not in self._set:
            text = f"Unexpected broker id, expected {self._node_id}, but received {name}"
            return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
        fault = _fault_of_names(changes)
        if fault is not None:
            return fault
        async with self._lock:
            try:
                before = {} if replaces else self._set[name]
                altered = overrides_after(before, changes, self.config)
                config = self._effective(self._set | {name: altered})
                check_threads(self.config, config)
                self._check(config)
            except ConfigError as error:
                # Kafka's code for it, too (KAFKA-13609).
                return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=str(error))
            if not validate_only and altered != self._set[name]:
                await self._write(name, altered)
                self._set[name], self.config = altered, config
                if self._follow is not None:
                    await self._follow(config)
            return None

    async def _write(self, name: str, altered: Mapping[str, str]) -> None:
        entry = await self._store.get(_key(name))
        result = await self._store.txn(
            [Compare(key=_key(name), mod_revision=entry.mod_revision if entry else 0)],
            [Put(key=_key(name), value=json.dumps(altered, separators=(",", ":")))],
        )
        assert result.succeeded, "only this class writes these keys, one change at a time"
        _log.info("broker configuration of %s: %s", name or "the cluster", dict(altered))

    def _holds(self, name: str, text: str) -> bool:
        """Whether a stored setting is one that this release takes."""
        try:
            self._started_with.overridden_by({name: text})
        except ConfigError as error:
            _log.warning("a stored broker setting is left out: %s", error)
            return False
        return True

    def _effective(self, set_: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        texts = {**set_[CLUSTER], **set_[str(self._node_id)]}
        return self._started_with.overridden_by(texts)


def check_threads(now: BrokerConfig, after: BrokerConfig) -> None:
    """Threads may become half as many or twice as many at once, and never none.

    Raises ConfigError, in Kafka's words.

    Source: Apache Kafka, LogCleaner.validateReconfiguration; DynamicThreadPool in
    DynamicBrokerConfig.scala.
    """
    _check_cleaner_threads(now.log_cleaner_threads, after.log_cleaner_threads)
    _check_recovery_threads(
        now.num_recovery_threads_per_data_dir, after.num_recovery_threads_per_data_dir
    )


def _check_cleaner_threads(now: int, after: int) -> None:
    if after < 1 <= now:
        raise ConfigError("Log cleaner threads should be at least 1")
    bound = f"the current value {now}"
    if after < now // 2:
        raise ConfigError(f"Log cleaner threads cannot be reduced to less than half {bound}")
    if after > now * 2:
        raise ConfigError(f"Log cleaner threads cannot be increased to more than double {bound}")


def _check_recovery_threads(now: int, after: int) -> None:
    name = "num.recovery.threads.per.data.dir"
    failed = f"Dynamic thread count update validation failed for {name}={after}, value should"
    if after < now // 2:
        raise ConfigError(f"{failed} be at least half the current value {now}")
    if after > now * 2:
        raise ConfigError(f"{failed} not be greater than double the current value {now}")


def dynamic_properties() -> set[str]:
    """The broker properties that may be set while it runs."""
    of_topics = (declared for _, declared, _ in topic_synonyms().values())
    declared = (*properties_of(BrokerConfig).values(), *of_topics)
    return {each.name for each in declared if each.dynamic}


def _key(name: str) -> str:
    return PREFIX + (name or "default")


def _fault_of_names(changes: Sequence[ConfigChange]) -> TopicRefused | None:
    """Why these properties cannot be set while the broker runs; messages as Kafka's."""
    # As in Kafka, whatever is not set may be deleted.
    names = [each.name for each in changes if each.operation != Operation.DELETE]
    unknown = [name for name in names if name not in known_properties()]
    if unknown:
        text = f"Unknown broker config name: {', '.join(unknown)}"
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)
    fixed = [name for name in names if name not in dynamic_properties()]
    if fixed:
        text = (
            f"Cannot update these configs dynamically: {', '.join(fixed)}. They are read at the"
            " start; change server.properties and restart."
        )
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    return None
