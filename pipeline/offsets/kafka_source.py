"""The topics that a job reads through Spark's Kafka source, and the options: a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pipeline.offsets.cut import Offsets, TableRefused

OWN_OPTIONS = frozenset(
    (
        "assign",
        "endingoffsets",
        "endingoffsetsbytimestamp",
        "endingtimestamp",
        "kafka.bootstrap.servers",
        "maxoffsetspertrigger",
        "startingoffsets",
        "startingoffsetsbytimestamp",
        "startingtimestamp",
        "subscribe",
        "subscribepattern",
    )
)
"""Options that only the table may set: any other choice of records would leave a gap in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """The topics of one table.

    Raises:
        TableRefused: an option selects the records to read.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of Spark's Kafka source, such as `kafka.security.protocol`."""

    def __post_init__(self) -> None:
        for name in self.options:
            if name.lower() in OWN_OPTIONS:
                raise TableRefused(f"--option {name}: a table knows itself which records it needs")

    @property
    def fails_on_data_loss(self) -> bool:
        return self.all_options()["failOnDataLoss"].lower() != "false"

    def all_options(self) -> dict[str, str]:
        """Returns the options for each read; a broker that does not answer ends the job within 30 s.

        A table holds committed records, so the source reads only these unless an option changes that.
        """
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "failOnDataLoss": "true",
            "fetchOffset.numRetries": "1",
            "kafka.default.api.timeout.ms": "15000",
            "kafka.request.timeout.ms": "10000",
            # Continue at a standby that has taken over: by default it asks the old broker for ever.
            "kafka.metadata.recovery.strategy": "rebootstrap",
            "kafka.isolation.level": "read_committed",
            **self.options,
        }

    def client_properties(self) -> dict[str, str]:
        """Returns the same options for a Kafka client of our own."""
        return {
            name.removeprefix("kafka."): value
            for name, value in self.all_options().items()
            if name.startswith("kafka.")
        }

    def up_to(self, end: Offsets) -> dict[str, str]:
        """Returns the options of a batch: exactly these partitions, from their first record to `end`."""
        partitions = {topic: sorted(parts) for topic, parts in end.items()}
        return {
            **self.all_options(),
            "assign": json.dumps(partitions),
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps(end),
        }

    def with_headers(self) -> Self:
        """Returns the source whose records also have the column `headers`."""
        return replace(self, options={**self.options, "includeHeaders": "true"})

    def stream_from(self, start: Offsets, offsets_per_batch: int | None) -> dict[str, str]:
        """Returns the options of a stream: from `start` on; later partitions from their first offset."""
        limit = (
            {} if offsets_per_batch is None else {"maxOffsetsPerTrigger": str(offsets_per_batch)}
        )
        return {
            **self.all_options(),
            "subscribe": ",".join(self.topics),
            "startingOffsets": json.dumps(start),
            **limit,
        }
