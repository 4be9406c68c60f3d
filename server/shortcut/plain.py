"""Runs plain requests in the callback that received them: a second path beside `server/dispatch.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.wire.api_keys import ApiKey
from server.net.send_queue import Part
from server.shortcut.fetch import FetchShortcut
from server.shortcut.produce import Done, ProduceShortcut
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.broker import Broker
    from server.net.connection import Connection

API_KEY_AT = 1
"""In a frame: the lower byte of the API key. The readers check the upper one."""


@loop_thread
class PlainRequests:
    """The second paths of one broker (`server/net/shared.py`, Shortcut)."""

    __slots__ = ("_broker", "_fetch", "_produce")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._produce = ProduceShortcut(broker)
        self._fetch = FetchShortcut(broker)

    def run(self, frame: bytearray, connection: Connection) -> Done | list[Part] | None:
        """Run a plain request. Returns what has been done, or the answer of a Fetch; None if the request
        must take the ordinary path, and then nothing has happened."""
        if connection.sasl is not None or self._has_rules or len(frame) <= API_KEY_AT:
            return None
        api_key = frame[API_KEY_AT]
        if api_key == ApiKey.PRODUCE:
            return self._produce.append(frame, connection)
        return self._fetch.read(frame, connection) if api_key == ApiKey.FETCH else None

    def waits_for_others(self, frame: bytearray) -> bool:
        """Returns whether this request usually waits for other requests: a Fetch does, for records."""
        return len(frame) > API_KEY_AT and frame[API_KEY_AT] == ApiKey.FETCH

    def complete_now(self, done: Done | list[Part]) -> list[Part] | None:
        """Returns the answer; None if it has to wait for the disk."""
        return done if isinstance(done, list) else self._produce.complete_now(done)

    def when_durable(
        self, done: Done | list[Part], then: Callable[[bytes | bytearray], None]
    ) -> None:
        """Call `then` with the answer to a Produce once its append is durable, or has failed to become
        so."""
        assert isinstance(done, Done), "a Fetch is complete at once"
        self._produce.when_durable(done, then)

    def start_round(self) -> None:
        """Start the sync that answers wait for."""
        self._broker.group_commit.start_round_now()

    @property
    def _has_rules(self) -> bool:
        """Whether requests need more than a log: a permission, a quota, or a refusal."""
        broker = self._broker
        return broker.authorizer is not None or broker.fence is not None or broker.quotas.are_set
