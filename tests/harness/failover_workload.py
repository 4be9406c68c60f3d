"""The clients of one generation of a failover drill, their topics, and the checks of both."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    TopicPartition,
)

from tests.harness.clients import create_topic
from tests.harness.failover_checks import (
    Content,
    Source,
    copied_ends,
    faults_of_acknowledged,
    faults_of_copier,
    faults_of_copy,
    faults_of_table,
    source_ends,
    source_of,
)
from tests.harness.failover_clients import (
    SECONDS_MAX,
    Client,
    Committer,
    Copier,
    Place,
    Reader,
    Straggler,
    Writer,
)
from tests.harness.failover_site import Site
from tests.harness.failover_topics import TopicChurn
from tests.harness.standby_process import Json

PARTITIONS = 2
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0",
}
MANY_KEYS, FEW_KEYS = 1 << 40, 20


class Workload:
    """All clients of a generation."""

    def __init__(self, servers: str, generation: int, seed: int) -> None:
        self.orders, self.table, self.journal, self.trimmed = (
            f"{word}-{generation}" for word in ("orders", "table", "journal", "trimmed")
        )
        size = {"partitions": PARTITIONS, "seed": seed}
        self.writer = Writer(servers, self.orders, keys=MANY_KEYS, **size)
        self.table_writer = Writer(servers, self.table, keys=FEW_KEYS, **size)
        self.copier = Copier(servers, self.orders, self.journal, **size)
        self.straggler = Straggler(servers, self.journal)
        self.readers = [
            Reader(servers, self.orders, protocol=each) for each in ("classic", "consumer")
        ]
        self.committer = Committer(servers, self.orders, seed=seed)
        self.churn = TopicChurn(servers, f"t-{generation}", trimmed=self.trimmed, seed=seed)
        self.clients: list[Client] = [
            self.writer,
            self.table_writer,
            self.copier,
            self.straggler,
            *self.readers,
            self.committer,
            self.churn,
        ]

    # ---------------------------------------------------------------- running

    def begin(self, address: str) -> None:
        """Create the topics at the primary, and start the clients."""
        for topic, partitions, config in (
            (self.orders, PARTITIONS, {}),
            (self.journal, PARTITIONS, {}),
            (self.table, PARTITIONS, COMPACTED),
            (self.trimmed, 1, {}),
        ):
            create_topic(address, topic, partitions=partitions, config=config)
        for client in self.clients:
            client.start()

    def end(self) -> None:
        for client in self.clients:
            client.end()

    def until_all_get_on(self) -> None:
        """Wait until every client has taken a step; a straggler has an open transaction."""
        before = {client: client.steps for client in self.clients}
        deadline_s = time.monotonic() + SECONDS_MAX
        for client in self.clients:
            while client.steps == before[client] and client is not self.straggler:
                assert time.monotonic() < deadline_s, str(client)
                self.committer.bound = self._bound()
                time.sleep(0.01)
        while not self.straggler.is_open:
            assert time.monotonic() < deadline_s, str(self.straggler)
            time.sleep(0.01)

    def _bound(self) -> int:
        offsets = list(self.writer.produced.acknowledged)
        return max((offset + 1 for partition, offset in offsets if partition == 0), default=0)

    # ---------------------------------------------------------------- checking

    def check(self, old: Site, address: str, report: Json) -> None:
        """Check everything at the broker that has taken over.

        Args:
            old: the site from which it has, where nothing runs now.
            address: of the new primary.
        """
        for client in self.clients:
            client.hold()
        faults = self._faults(old, address, report)
        troubles = {client.name: client.troubles[-3:] for client in self.clients if client.troubles}
        assert not faults, f"{len(faults)} faults: {faults[:20]}; {report}; {troubles}"
        for client in self.clients:
            client.go_on()

    def _faults(self, old: Site, address: str, report: Json) -> list[str]:
        topics = (self.orders, self.table, self.journal, self.trimmed)
        source = {
            topic: {number: source_of(log) for number, log in old.logs(topic).items()}
            for topic in topics
        }
        listed = copied_ends(report["missing"])
        copied = {
            topic: {number: listed.get((topic, number), each.end) for number, each in logs.items()}
            for topic, logs in source.items()
        }
        faults = self._faults_of_report(report, source)
        found = {topic: read(address, topic, len(source[topic])) for topic in topics}
        for topic in topics:
            for number, each in source[topic].items():
                faults += faults_of_copy(
                    (topic, number),
                    each,
                    found[topic][number],
                    copied[topic][number],
                    start=self.churn.trimmed_bound if topic == self.trimmed else 0,
                    is_compacted=topic == self.table,
                )
        for writer, faults_of in (
            (self.writer, faults_of_acknowledged),
            (self.table_writer, faults_of_table),
        ):
            topic = writer.topic
            faults += faults_of(topic, writer.produced, source[topic], found[topic], copied[topic])
        is_clean = not report["missing"]
        faults += self._faults_of_transactions(
            address, found[self.orders], report, is_clean=is_clean
        )
        faults += self._faults_of_groups(address, found[self.orders], report, is_clean=is_clean)
        faults += self._faults_of_topics(address, is_clean=is_clean)
        return faults

    def left_behind(self, old: Site, report: Json) -> dict[Place, set[int]]:
        """Returns, by partition, the offsets of what only the old primary has; it must not run."""
        listed = copied_ends(report["missing"])
        return {
            place: {offset for offset in source_of(log).content if offset >= listed[place]}
            for topic in (self.orders, self.journal)
            for number, log in old.logs(topic).items()
            if (place := (topic, number)) in listed
        }

    def _faults_of_report(
        self, report: Json, source: Mapping[str, Mapping[int, Source]]
    ) -> list[str]:
        """Where the report says where the source's logs end, they do."""
        is_exact = not any(each.startswith("unknown:") for each in report["missing"])
        told = source_ends(report["missing"]) if is_exact else {}
        return [
            f"{topic}-{number} ends at {each.end}, the report says {told[topic, number]}"
            for topic, logs in source.items()
            for number, each in logs.items()
            if told.get((topic, number), each.end) != each.end
        ]

    def _faults_of_transactions(
        self, address: str, given: Mapping[int, Content], report: Json, *, is_clean: bool
    ) -> list[str]:
        """Open transactions are aborted, and no reader sees what was not committed."""
        faults = []
        if is_clean and self.straggler.transactional_id not in report["aborted"]:
            faults.append(f"the open transaction was not aborted: {report['aborted']}")
        if not self.straggler.commit():
            faults.append("a transaction that was open during the promotion was committed after it")
        seen = read(address, self.journal, PARTITIONS, isolation="read_committed")
        values = [value or b"" for content in seen.values() for _, value in content.values()]
        if Straggler.VALUE in values:
            faults.append("a record of an open transaction is visible")
        copies = [each for each in values if each != Straggler.VALUE]
        places = [(self.orders, number) for number in range(PARTITIONS)]
        committed = {
            number: offset
            for (_, number), offset in offsets_of(address, self.copier.group, places).items()
        }
        if is_clean:
            faults += faults_of_copier(self.copier, given, copies, committed)
        aborted = [each for each in copies if each.decode().split()[0] in self.copier.aborted]
        faults += [f"{each!r} is of an aborted transaction" for each in aborted]
        return faults

    def _faults_of_groups(
        self, address: str, given: Mapping[int, Content], report: Json, *, is_clean: bool
    ) -> list[str]:
        ends = ends_of(address, self.orders, PARTITIONS)
        faults = []
        for reader in self.readers:
            places = [(self.orders, number) for number in range(PARTITIONS)]
            for (_, number), offset in offsets_of(address, reader.group, places).items():
                may_be = {reader.committed.get(number, -1), *reader.uncertain[number]}
                if offset > ends[number] or (is_clean and offset not in may_be):
                    faults.append(f"{reader.group}: {offset} of {ends[number]}, not {may_be}")
                handled = reader.handled[number]
                faults += [
                    f"{reader.group}: {number}-{at} is committed, and was not handled"
                    for at, (_, value) in given[number].items()
                    if at < offset and at not in handled and is_clean and value is not None
                ]
        lowered = "\n".join(report["lowered"])
        for group in self.committer.groups():
            ((_, offset),) = offsets_of(address, group, [(self.orders, 0)]).items()
            may_be = {self.committer.committed.get(group, -1), *self.committer.uncertain[group]}
            if not is_clean:
                may_be |= self.committer.ever[group] | {-1}
            is_lowered = f"group {group} had committed" in lowered
            if offset > ends[0] or (offset not in may_be and not is_lowered):
                faults.append(f"{group}: {offset} of {ends[0]}, not {may_be}")
        return faults

    def _faults_of_topics(self, address: str, *, is_clean: bool) -> list[str]:
        consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
        there = set(consumer.list_topics(timeout=SECONDS_MAX).topics)
        consumer.close()
        churn = self.churn
        if not is_clean:
            return []
        faults = [f"{name} is deleted, and there" for name in sorted(churn.deleted & there)]
        for name, expected in churn.existing.items():
            if name not in there:
                faults.append(f"{name} is lost")
                continue
            content = read(address, name, 2)[1]
            values = [value for _, (_, value) in sorted(content.items())]
            if values != expected:
                faults.append(f"{name} has {values}, not {expected}")
        start = min(read(address, self.trimmed, 1)[0], default=churn.trimmed_start)
        if start < churn.trimmed_start:
            faults.append(f"{self.trimmed} has {start}, deleted below {churn.trimmed_start}")
        return faults


# ---------------------------------------------------------------- reading


def read(
    address: str, topic: str, partitions: int, *, isolation: str = "read_uncommitted"
) -> dict[int, Content]:
    """Returns all records of a topic, up to where it ends for readers of this isolation now."""
    consumer = _consumer(address, "unused", isolation)
    found: dict[int, dict[int, tuple[bytes | None, bytes | None]]] = {
        number: {} for number in range(partitions)
    }
    try:
        behind = set(found)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in found])
        deadline_s = time.monotonic() + SECONDS_MAX
        while behind:
            assert time.monotonic() < deadline_s, f"{topic}: {behind}"
            for message in consumer.consume(1_000, 0.1):
                number, error, offset = message.partition(), message.error(), message.offset()
                assert number is not None
                if error is None and offset is not None:
                    found[number][offset] = (message.key(), message.value())
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    behind.discard(number)
    finally:
        consumer.close()
    return dict(found)


def ends_of(address: str, topic: str, partitions: int) -> dict[int, int]:
    """Returns where the partitions end."""
    consumer = _consumer(address, "unused", "read_uncommitted")
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in range(partitions)
        }
    finally:
        consumer.close()


def offsets_of(address: str, group: str, places: list[Place]) -> dict[Place, int]:
    """Returns a group's committed offsets; -1 where it has none."""
    consumer = _consumer(address, group, "read_committed")
    try:
        found = consumer.committed([TopicPartition(*each) for each in places], SECONDS_MAX)
    finally:
        consumer.close()
    return {(each.topic, each.partition): max(each.offset, -1) for each in found}


def _consumer(address: str, group: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )
