"""Which of two brokers serves: whether this one takes over from another, or another one has from it.

The steps of a start:

    begin    what turns a standby's directory into a broker's or back continues (`taking_over.py`)
    settle   it changes the metadata stores
    decide   look for a fence, and for a peer that was promoted meanwhile (`fence.py`)
    finish   a promotion ends, once topics, groups and transactions are there
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from server.config.broker_configs import BrokerConfigs
from server.config.config import BrokerConfig
from server.coordination.groups.offset_commands import OffsetCommands
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.coordination.transactions.transaction_table import TransactionEntry
from server.runtime.executors import Executor
from server.standby.fence import Fence, Waiting, fence_at_start
from server.standby.peer_answers import Peer
from server.standby.taking_over import TakingOver, taking_over
from server.topics.stores import MetadataStores
from server.topics.topics import Topics
from storage.files.files import FileSystem

if TYPE_CHECKING:
    from server.standby.peer_wait import PeerWait
    from server.standby.peers import Peers

_log = logging.getLogger("server.standby.succession")


class Succession:
    """The part of one start in a succession; most brokers have none."""

    __slots__ = ("_config", "_found", "_is_standby", "_peer_wait", "_peers", "fence")

    def __init__(self, config: BrokerConfig, *, is_standby: bool) -> None:
        """
        Args:
            is_standby: whether the broker is a standby, not promoted.
        """
        # Constant after construction
        self._config = config
        self._is_standby = is_standby
        # State
        self._found = TakingOver()
        self._peers: Peers | None = None
        self._peer_wait: PeerWait | None = None
        self.fence: Fence | Waiting | None = None
        """Why this broker serves only what reads; None if it serves all."""

    @property
    def term_min(self) -> int:
        """The least term in which this broker leads."""
        return 1 if self._found.promoted is None else self._found.promoted.term_min

    async def begin(self, files: FileSystem, upkeep: Executor) -> None:
        """Continue what turns a standby's directory into a broker's or back, if that has begun.

        Raises:
            ForeignDirectory: the directory is a standby's, and this broker is none.
            StorageError: the disk failed.
        """
        self._found = await taking_over(
            files,
            self._config.data_directories,
            self._config.metadata_directory,
            upkeep,
            is_standby=self._is_standby,
        )

    async def settle(
        self, stores: MetadataStores, *, directory_id: str, node_config_key: str
    ) -> None:
        """Change the stores as it needs. Raises StorageError.

        Args:
            directory_id: of the log directory that has the metadata.
            node_config_key: the key of the properties that are set on this node.
        """
        if self._found.promoted is not None:
            await self._found.promoted.settle_stores(stores, directory_id)
        if self._found.rejoined is not None:
            await self._found.rejoined.settle_stores(stores, node_config_key)

    async def decide(
        self,
        configs: BrokerConfigs,
        stores: MetadataStores,
        peers: Peers | None,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Look for a fence, and for a peer that was promoted meanwhile.

        Just before anything writes and clients are let in, so that no recovery passes in between. A
        standby serves no clients, and one that is being promoted has decided before.
        """
        self._peers = peers
        if self._is_standby or self._found.promoted is not None:
            return
        self.fence = await fence_at_start(configs, stores.node, peers, now_ms=now_ms)
        if self.fence is not None:
            _log.warning("%s", self.fence.described(self._config.internal_listener))

    @property
    def transaction_loaded(self) -> Callable[[TransactionEntry], None] | None:
        """What a promotion has to do with each transaction; None if there is none."""
        promoted = self._found.promoted
        return None if promoted is None else promoted.transaction_loaded

    async def finish(
        self, topics: Topics, transactions: TransactionCoordinator, offsets: OffsetCommands
    ) -> None:
        """End the promotion that this start completes, if any. Raises StorageError."""
        if self._found.promoted is not None:
            await self._found.promoted.finish(topics, transactions, offsets)

    def wait_for_peers(self, *, lost: Callable[[str], None], answered: Callable[[], None]) -> None:
        """Ask the peers until one answers, if the broker does not serve before that.

        Args:
            lost: called with the reason why it waits each time that none answers.
            answered: called once, when one has.
        """
        if self._peers is None or not isinstance(self.fence, Waiting):
            return
        from server.standby.peer_wait import PeerWait

        def none_answers(peers: Sequence[Peer]) -> None:
            self.fence = Waiting(peers)
            lost(self.fence.reason)

        self._peer_wait = PeerWait(self._peers.ask, lost=none_answers, answered=answered)

    async def stop(self) -> None:
        """No longer ask."""
        if self._peer_wait is not None:
            await self._peer_wait.stop()
