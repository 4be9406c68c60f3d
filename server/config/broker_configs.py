"""The broker's configuration while it runs: the static one, overridden by what clients have set.

    /broker_configs/<node id>    {"<name>": "<value>", ...}   set on this broker; in the node's store
    /broker_configs/default      the same, set for every broker; in the cluster's store

A value of this broker takes precedence over a cluster-wide one, and that over the static configuration
(`server/config/config.py`). The settings of a topic are not here: see `server/topics/topics.py`. Only
properties that are declared dynamic can be set; a change takes effect as soon as it is durable, and
holds after a restart.

Source: KIP-226; Apache Kafka, DynamicBrokerConfig.scala.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from protocol.wire.error_codes import ErrorCode
from server.config.changes import ConfigChange, Operation, overrides_after
from server.config.config import BrokerConfig, known_properties
from server.config.listeners.overrides import override_declared
from server.config.standby_config import FENCED_BY
from server.metadata.store import Compare, MetadataStore, Put
from server.topics.defaults import topic_synonyms
from server.topics.topic import TopicRefused
from storage.formats.config_property import ByListener, ConfigError, ConfigProperty, properties_of
from storage.threads import loop_thread

_log = logging.getLogger("server.config.broker_configs")

PREFIX = "/broker_configs/"
CLUSTER = ""
"""The resource name by which clients set properties for all brokers."""
KEPT = frozenset({FENCED_BY})
"""What a request that replaces all properties keeps unless it names it: a tool that sets some other
property by AlterConfigs must not let a fenced broker serve."""


@loop_thread
class BrokerConfigs:
    """Sole owner of the broker's dynamic configuration."""

    __slots__ = (
        "_check", "_follow", "_lock", "_node_id", "_set", "_started_with", "_stores", "config",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        node_store: MetadataStore,
        started_with: BrokerConfig,
        *,
        node_id: int,
    ) -> None:
        # Constant after construction
        self._stores = {CLUSTER: store, str(node_id): node_store}
        self._started_with = started_with
        self._node_id = node_id
        self._lock = asyncio.Lock()
        # State
        self._set: dict[str, dict[str, str]] = {CLUSTER: {}, str(node_id): {}}
        self.config = started_with
        """The configuration in effect."""
        self._check: Callable[[BrokerConfig], Awaitable[None]] | None = None
        self._follow: Callable[[BrokerConfig], Awaitable[None]] | None = None

    @property
    def own(self) -> Mapping[str, str]:
        """The properties set on this broker."""
        return self._set[str(self._node_id)]

    @property
    def cluster(self) -> Mapping[str, str]:
        """The properties set for all brokers."""
        return self._set[CLUSTER]

    def names_set(self, name: str) -> AbstractSet[str]:
        """Returns the properties that are set on one broker or, for `CLUSTER`, on all."""
        return self._set.get(name, {}).keys()

    async def open(self) -> None:
        """Read the stored settings; ignore, with a warning, those that this release does not accept."""
        for name in self._set:
            entry = await self._stores[name].get(_key(name))
            stored = json.loads(entry.value) if entry else {}
            self._set[name] = {
                each: text for each, text in stored.items() if self._is_accepted(each, text)
            }
        self.config = self._effective(self._set)

    def when_changed(
        self,
        follow: Callable[[BrokerConfig], Awaitable[None]],
        *,
        check: Callable[[BrokerConfig], Awaitable[None]] | None = None,
    ) -> None:
        """Set the callbacks for changes.

        Args:
            follow: called on the loop with the new configuration, after each change is durable.
            check: called before a change; raises ConfigError to refuse it.
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
        """Change the settings of one broker or of all; durable and in effect when this returns.

        Args:
            name: this broker's number, or `CLUSTER`.
            replaces: whether settings that are not among the changes are removed.

        Returns:
            Why nothing was changed, or None.
        """
        if name not in self._set:
            text = f"Unexpected broker id, expected {self._node_id}, but received {name}"
            return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
        fault = _fault_of_names(changes, of_cluster=name == CLUSTER)
        if fault is not None:
            return fault
        async with self._lock:
            try:
                before = self._kept(name) if replaces else self._set[name]
                altered = overrides_after(before, changes, self.config)
                config = self._effective(self._set | {name: altered})
                check_threads(self.config, config)
                if self._check is not None:
                    await self._check(config)
            except ConfigError as error:
                # Kafka answers with this code, too (KAFKA-13609).
                return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=str(error))
            if not validate_only and altered != self._set[name]:
                await self._write(name, altered)
                self._set[name], self.config = altered, config
                if self._follow is not None:
                    await self._follow(config)
            return None

    async def alter_own(self, changes: Sequence[ConfigChange]) -> TopicRefused | None:
        """Change the settings of this broker, as `alter` does."""
        return await self.alter(str(self._node_id), changes, replaces=False, validate_only=False)

    def _kept(self, name: str) -> Mapping[str, str]:
        return {each: text for each, text in self._set[name].items() if each in KEPT}

    async def _write(self, name: str, altered: Mapping[str, str]) -> None:
        entry = await self._stores[name].get(_key(name))
        result = await self._stores[name].txn(
            [Compare(key=_key(name), mod_revision=entry.mod_revision if entry else 0)],
            [Put(key=_key(name), value=json.dumps(altered, separators=(",", ":")))],
        )
        assert result.succeeded, "only this class writes these keys, one change at a time"
        _log.info("broker configuration of %s: %s", name or "the cluster", _shown(altered))

    def _is_accepted(self, name: str, text: str) -> bool:
        """Returns whether this release accepts a stored setting."""
        try:
            self._started_with.overridden_by({name: text})
        except ConfigError as error:
            _log.warning("ignored a stored broker setting: %s", error)
            return False
        return True

    def _effective(self, set_: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        texts = {**set_[CLUSTER], **set_[str(self._node_id)]}
        return self._started_with.overridden_by(texts)


def check_threads(now: BrokerConfig, after: BrokerConfig) -> None:
    """Check that one change halves or doubles the number of threads at most, and leaves at least one.

    Raises ConfigError with Kafka's message.

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
    """Returns the names of the broker properties that may be set while it runs."""
    of_topics = (declared for _, declared, _ in topic_synonyms().values())
    declared = (*properties_of(BrokerConfig).values(), *of_topics)
    return {each.name for each in declared if each.dynamic}


def listener_properties() -> set[str]:
    """Returns the names of the properties that may be set while it runs, for one listener only."""
    return {
        each.name
        for each in properties_of(BrokerConfig).values()
        if each.by_listener is ByListener.WHILE_RUNNING and not each.dynamic
    }


def _of_one_broker() -> set[str]:
    """Returns the names of the properties that may be set for one broker only."""
    return {each.name for each in properties_of(BrokerConfig).values() if each.of_one_broker}


def _is_dynamic(name: str, override: ConfigProperty | None) -> bool:
    return name in dynamic_properties() if override is None else override.dynamic


def without_secrets(stored: str) -> str:
    """Returns the stored properties without secrets."""
    return json.dumps(_shown(json.loads(stored)), separators=(",", ":"))


def _shown(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts as people may see them, without secrets."""
    secret = {each.name for each in properties_of(BrokerConfig).values() if each.is_sensitive}
    return {
        name: "<hidden>" if name in secret or _is_secret_override(name) else text
        for name, text in texts.items()
    }


def _is_secret_override(name: str) -> bool:
    declared = override_declared(BrokerConfig, name)
    return declared is not None and declared.is_sensitive


def node_config_key(node_id: int) -> str:
    """Returns the key of the properties that are set on one broker."""
    return _key(str(node_id))


def _key(name: str) -> str:
    return PREFIX + (name or "default")


def _fault_of_names(changes: Sequence[ConfigChange], *, of_cluster: bool) -> TopicRefused | None:
    """Returns why these properties cannot be set while the broker runs, in Kafka's words, or None."""
    # As in Kafka, deleting a property that is unknown or not set is no error.
    names = [each.name for each in changes if each.operation != Operation.DELETE]
    overrides = {name: override_declared(BrokerConfig, name) for name in names}
    unknown = [name for name in names if name not in known_properties() and overrides[name] is None]
    if unknown:
        text = f"Unknown broker config name: {', '.join(unknown)}"
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)
    of_listeners = [name for name in names if name in listener_properties()]
    if of_listeners:
        text = (
            "These security configs can be dynamically updated only per-listener using the listener"
            f" prefix: {', '.join(of_listeners)}"
        )
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    of_broker = [name for name in names if overrides[name] is not None or name in _of_one_broker()]
    if of_cluster and of_broker:
        text = f"Cannot update these configs at default cluster level: {', '.join(of_broker)}"
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    fixed = [name for name in names if not _is_dynamic(name, overrides[name])]
    if fixed:
        text = (
            f"Cannot update these configs dynamically: {', '.join(fixed)}. They are read at the"
            " start; change server.properties and restart."
        )
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    return None
