"""The start of a broker that finishes the promotion of a standby.

files            `install.py`: the copies become the broker's own
stores           placements, topics that the metadata does not have yet, producer ids
topics, coordinators open as after any start
coordinators     ongoing transactions aborted, committed offsets beyond the end lowered
the end          the report is written, `promotion.json` removed; then the listeners open
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from cleaner.rules.text import count_text
from server.coordination.groups.offset_commands import OffsetCommands
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.coordination.transactions.metadata import TransactionPartition, TransactionState
from server.coordination.transactions.transaction_table import TransactionEntry
from server.metadata.producer_ids import KEY as NEXT_PRODUCER_ID
from server.metadata.reign import EPOCH_STEP
from server.metadata.store import Compare
from server.runtime.executors import Executor
from server.standby.followed_topics import COORDINATOR_TOPICS
from server.standby.lowered_offsets import beyond_the_end, lower_offsets
from server.standby.promoted_stores import PROMOTIONS, place, promoted_metadata
from server.standby.promotion import Promotion, end_promotion, note_found
from server.topics.start import read_topics
from server.topics.stores import MetadataStores
from server.topics.topics import Topics
from storage.files.files import FileSystem
from storage.threads import loop_thread

_log = logging.getLogger("server.standby")

UNKNOWN = frozenset({"unknown", "all topics"})
"""How a sentence begins that says of all partitions that they may lack records."""
LISTED_MAX = 20
"""So many sentences of a list are logged; the report has all."""


@loop_thread
class PromotedStart:
    """Finishes one promotion."""

    __slots__ = ("_committing", "_directory", "_fs", "_ongoing", "_upkeep", "promotion")

    def __init__(
        self, fs: FileSystem, directory: str, promotion: Promotion, upkeep: Executor
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._upkeep = upkeep
        # State
        self.promotion = promotion
        self._committing: dict[str, frozenset[TransactionPartition]] = {}
        """Transactions that were decided to be committed and whose markers may be missing."""
        self._ongoing = set[str]()

    @property
    def term_min(self) -> int:
        """The least term in which the metadata's log leads."""
        return self.promotion.epoch + EPOCH_STEP

    async def settle_stores(self, stores: MetadataStores, directory_id: str) -> None:
        """Write what the promotion changes in the stores, unless an earlier start has.

        Args:
            directory_id: the log directory with the metadata, where the coordinators' logs are.

        Raises:
            StorageError: a store failed.
        """
        stored = await read_topics(stores.cluster, stores.node, self._upkeep)
        ids = {topic.name: str(topic.id) for topic in stored.topics}
        key = f"{PROMOTIONS}{self.promotion.promoted_ms}"
        if await stores.cluster.get(key) is None:
            found = await stores.cluster.get(NEXT_PRODUCER_ID)
            operations = promoted_metadata(
                self.promotion, ids, 0 if found is None else int(found.value)
            )
            await stores.cluster.txn([Compare(key=key, mod_revision=0)], operations)
            stored = await read_topics(stores.cluster, stores.node, self._upkeep)
        placed = place(stored, directory_id, written=COORDINATOR_TOPICS)
        await self._note(missing=placed.without_log)
        if placed.operations:
            await stores.node.txn((), placed.operations)

    def transaction_loaded(self, entry: TransactionEntry) -> None:
        """Note a transaction before it changes: its timeout may be over, and once its markers are
        written it no longer has its partitions."""
        transactional_id, metadata = entry.transaction.transactional_id, entry.transaction.metadata
        if metadata.state is TransactionState.PREPARE_COMMIT:
            self._committing[transactional_id] = metadata.partitions
        elif metadata.state is TransactionState.ONGOING:
            self._ongoing.add(transactional_id)

    async def finish(
        self, topics: Topics, transactions: TransactionCoordinator, offsets: OffsetCommands
    ) -> None:
        """Settle the coordinators, and end the promotion.

        Raises:
            StorageError: a record could not be written; the next start tries again.
        """
        await transactions.loaded()
        incomplete = incomplete_transactions(self.promotion.missing, self._committing)
        await self._note(aborted=sorted(self._ongoing), incomplete=incomplete)
        await transactions.abort_ongoing()
        await offsets.loaded()
        beyond = await beyond_the_end(topics, offsets)
        await self._note(lowered=beyond.sentences)
        await lower_offsets(offsets, beyond)
        report = self.promotion
        path = await self._upkeep.run(end_promotion, self._fs, self._directory, report)
        _log.warning(
            "promoted%s to take over from %s: %s missing, %s aborted, %s lowered; the report is %s",
            " by force" if report.forced else "",
            report.source,
            count_text(len(report.missing), "part") if report.missing else "nothing",
            count_text(len(report.aborted), "transaction"),
            count_text(len(report.lowered), "committed offset"),
            path,
        )
        for sentence in [*report.missing, *report.incomplete, *report.lowered][:LISTED_MAX]:
            _log.warning("%s", sentence)

    async def _note(self, **lists: Iterable[str]) -> None:
        """Put what was found on the report, durably: the next start would not find it once more."""
        noted = self.promotion.with_found(**lists)
        if noted != self.promotion:
            await self._upkeep.run(note_found, self._fs, self._directory, noted)
            self.promotion = noted


def incomplete_transactions(
    missing: Iterable[str], committing: Mapping[str, Iterable[TransactionPartition]]
) -> list[str]:
    """Returns a sentence for each partition of a committed transaction that may lack records: pure.

    Args:
        missing: what the standby lacks (`Promotion.missing`).
        committing: the partitions of committed transactions, by transactional id.
    """
    behind = {sentence.partition(":")[0] for sentence in missing}
    is_unknown = not behind.isdisjoint(UNKNOWN)
    return [
        f"the transaction of {transactional_id} is committed, and {partition} may lack records of the"
        " source"
        for transactional_id, partitions in sorted(committing.items())
        for partition in sorted(f"{each.topic}-{each.partition}" for each in partitions)
        if is_unknown or partition in behind
    ]
