"""The start of a broker that finishes the promotion of a standby.

files            `install.py`: the copies become the broker's own
stores           placements, topics that the metadata does not have yet, producer ids
topics, coordinators open as after any start
coordinators     ongoing transactions aborted, committed offsets beyond the end lowered
the end          the report is written, `promotion.json` removed; then the listeners open
"""

from __future__ import annotations

import logging

from cleaner.rules.text import count_text
from server.coordination.groups.offset_commands import OffsetCommands
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.coordination.transactions.metadata import TransactionState
from server.metadata.producer_ids import KEY as NEXT_PRODUCER_ID
from server.metadata.store import Compare
from server.runtime.executors import Executor
from server.standby.followed_topics import COORDINATOR_TOPICS
from server.standby.lowered_offsets import lower_offsets
from server.standby.promoted_stores import PROMOTIONS, place, promoted_metadata
from server.standby.promotion import Promotion, Report, end_promotion
from server.standby.reign import EPOCH_STEP
from server.topics.start import read_topics
from server.topics.stores import MetadataStores
from server.topics.topics import Topics
from storage.files.files import FileSystem
from storage.threads import loop_thread

_log = logging.getLogger("server.standby")

LISTED_MAX = 20
"""So many sentences of a list are logged; the report has all."""


@loop_thread
class PromotedStart:
    """Finishes one promotion."""

    __slots__ = ("_directory", "_fs", "_missing", "_upkeep", "promotion")

    def __init__(
        self, fs: FileSystem, directory: str, promotion: Promotion, upkeep: Executor
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self.promotion = promotion
        self._upkeep = upkeep
        # State
        self._missing = list(promotion.missing)

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
        self._missing += placed.without_log
        if placed.operations:
            await stores.node.txn((), placed.operations)

    async def finish(
        self, topics: Topics, transactions: TransactionCoordinator, offsets: OffsetCommands
    ) -> None:
        """Settle the coordinators, and end the promotion.

        Raises:
            StorageError: a record could not be written; the next start tries again.
        """
        incomplete = self._incomplete(transactions)
        aborted = await transactions.abort_ongoing()
        await offsets.loaded()
        lowered = await lower_offsets(topics, offsets)
        report = self.report(aborted=aborted, incomplete=incomplete, lowered=lowered)
        path = await self._upkeep.run(end_promotion, self._fs, self._directory, report)
        _log.warning(
            "promoted%s to take over from %s: %s missing, %s aborted, %s lowered; the report is %s",
            " by force" if report.forced else "",
            report.source,
            count_text(len(report.missing), "part") if report.missing else "nothing",
            count_text(len(aborted), "transaction"),
            count_text(len(lowered), "committed offset"),
            path,
        )
        for sentence in [*report.missing, *incomplete, *lowered][:LISTED_MAX]:
            _log.warning("%s", sentence)

    def report(self, *, aborted: list[str], incomplete: list[str], lowered: list[str]) -> Report:
        """Returns what is left of the promotion."""
        fields = {name: getattr(self.promotion, name) for name in Promotion.__struct_fields__}
        fields["missing"] = self._missing
        return Report(**fields, aborted=aborted, incomplete=incomplete, lowered=lowered)

    def _incomplete(self, transactions: TransactionCoordinator) -> list[str]:
        """Returns a sentence for each committed transaction of which records may be missing."""
        behind = {sentence.partition(":")[0] for sentence in self.promotion.missing}
        return [
            f"the transaction of {entry.transaction.transactional_id} is committed, and {partition}"
            " lacks records of the source"
            for entry in transactions.table.entries()
            if entry.transaction.metadata.state is TransactionState.PREPARE_COMMIT
            for partition in sorted(
                f"{each.topic}-{each.partition}" for each in entry.transaction.metadata.partitions
            )
            if partition in behind
        ]
