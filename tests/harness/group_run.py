"""Runs members of one group as processes next to a producer, and collects their results."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.internal_topics.group_records import GroupMetadataKey, GroupMetadataValue, read_record
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from tests.harness.clients import ConfluentClient
from tests.harness.forked_python import CLIENT_LIBRARIES, start_python
from tests.harness.java_client import JavaClient
from tests.harness.member_program import MEMBER_PROGRAMS

SECONDS_MAX = 300.0

Place = tuple[int, int]
"""Partition and offset."""


class MemberProcess:
    """One member."""

    def __init__(self, command: list[str], output: Path) -> None:
        self.output = output
        self.has_left = False
        self._errors = output.with_name(f"{output.name}.err")
        with output.open("wb") as file, self._errors.open("wb") as errors:
            self.process = start_python(command, CLIENT_LIBRARIES, stdout=file, stderr=errors)

    def handled(self) -> list[Place]:
        """Returns the records that it has handled so far, in order."""
        lines = self.output.read_text().splitlines(keepends=True)
        words = (line.split() for line in lines if line.endswith("\n"))
        return [(int(partition), int(offset)) for partition, offset in words]

    def last_places(self) -> list[Place]:
        """Returns the last record that it has handled of each partition."""
        return list(dict(sorted(self.handled())).items())

    def leave(self) -> None:
        """Stop it cleanly."""
        self.has_left = True
        self.process.terminate()
        code = self.process.wait(SECONDS_MAX)
        assert code in (0, 143), f"a member ended with {code}: {self.complaints()}"

    def has_handled_more_than(self, count: int) -> bool:
        """Returns whether it has handled more than `count` records. It must still be running."""
        code = self.process.poll()
        assert code is None, f"a member ended by itself with {code}: {self.complaints()}"
        return len(self.handled()) > count

    def complaints(self) -> str:
        """Returns the end of its standard error."""
        return self._errors.read_text()[-2000:]

    def resume(self) -> None:
        """Resume the partition that it had paused."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class GroupRun:
    """A group of members with one kind of client, which read a topic while it is written to."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, client: str) -> None:
        self.folder, self.bootstrap, self.topic = folder, bootstrap, topic
        self.client = client
        self.group_id = f"group of {topic}"
        self.members: list[MemberProcess] = []
        self.written: set[Place] = set()
        self._is_writing = threading.Event()
        self._writer: threading.Thread | None = None
        self._errors: list[str] = []

    # Members.

    def start(self, properties: Mapping[str, str] | None = None) -> MemberProcess:
        """Start one more member."""
        output = self.folder / f"{self.topic}.{len(self.members)}"
        member = MemberProcess(self._command(dict(properties or {})), output)
        self.members.append(member)
        return member

    def _command(self, properties: dict[str, str]) -> list[str]:
        if self.client.startswith("java-"):
            timeouts = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
            if properties.get("group.protocol") == "consumer":
                timeouts = {}
            java = JavaClient(self.client.removeprefix("java-"))
            settings = {**timeouts, **properties}
            return java.member_command(self.bootstrap, self.group_id, self.topic, settings)
        if self.client == "kcat":
            settings = {
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": "200",
                "session.timeout.ms": "6000",
                "heartbeat.interval.ms": "500",
                **properties,
            }
            options = [word for pair in settings.items() for word in ("-X", "=".join(pair))]
            base = ["kcat", "-b", self.bootstrap, "-q", "-u", "-E", "-f", "%p %o\n", *options]
            return [*base, "-G", self.group_id, self.topic]
        pairs = [f"{name}={value}" for name, value in properties.items()]
        if self.client in MEMBER_PROGRAMS:
            program = MEMBER_PROGRAMS[self.client].command()
            return [*program, self.bootstrap, self.group_id, self.topic, *pairs]
        program = [sys.executable, "-m", "tests.harness.group_member", self.client]
        return [*program, self.bootstrap, self.group_id, self.topic, *pairs]

    def handled(self) -> set[Place]:
        """Returns the records that any member has handled."""
        return {place for member in self.members for place in member.handled()}

    def missing(self) -> set[Place]:
        """Returns the acknowledged records that no member has handled."""
        missing = self.written - self.handled()
        return missing - self._swallowed() if self.client == "kcat" else missing

    def _swallowed(self) -> set[Place]:
        """Returns the records that a stopping kcat dropped: it commits the record that it polls last
        without printing it (kcat.c, `consume_cb`), the one after the last that it printed of a
        partition."""
        return {
            (partition, offset + 1)
            for member in self.members
            if member.has_left
            for partition, offset in member.last_places()
        }

    def until_all_work(self, *members: MemberProcess) -> None:
        """Wait until each of these members has handled a new record."""
        before = {member: len(member.handled()) for member in members}
        until(
            "all members work",
            lambda: all(member.has_handled_more_than(before[member]) for member in members),
            self.state,
        )

    def until_all_is_handled(self) -> None:
        """Wait until every acknowledged record is handled and committed."""
        until(
            "all is handled",
            lambda: not self.missing(),
            lambda: f"{sorted(self.missing())} are missing; {self.state()}",
        )
        until("all is committed", lambda: self.committed() == self.ends(), self.state)

    # Records.

    def write(self) -> None:
        """Start writing in the background."""
        self._is_writing.set()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def write_a_history(self, partitions: int, timestamps_ms: Sequence[int]) -> None:
        """Write into every partition a record with the i-th timestamp at offset i."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition in range(partitions):
            for timestamp_ms in timestamps_ms:
                producer.produce(
                    self.topic,
                    value=b"x",
                    partition=partition,
                    timestamp=timestamp_ms,
                    on_delivery=self._delivered,
                )
        producer.flush(SECONDS_MAX)
        assert not self._errors, self._errors[0]

    def stop_writing(self) -> None:
        """Stop writing, and wait until all records are acknowledged."""
        self._is_writing.clear()
        assert self._writer is not None
        self._writer.join(SECONDS_MAX)
        assert not self._errors, self._errors[0]

    def _write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "partitioner": "random"}
        )
        while self._is_writing.is_set():
            for _ in range(20):
                producer.produce(self.topic, key=None, value=b"x" * 50, on_delivery=self._delivered)
            producer.poll(0.05)
        producer.flush(SECONDS_MAX)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._errors.append(str(error))
        else:
            self.written.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

    # Queries to the broker.

    def ends(self) -> dict[int, int]:
        """Returns the end offsets of the partitions that have records."""
        ends: dict[int, int] = {}
        for partition, offset in self.written:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return ends

    def committed(self) -> dict[int, int]:
        """Returns the group's committed offsets; partitions without one are left out."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        parts = [TopicPartition(self.topic, partition) for partition in self.ends()]
        asked = [ConsumerGroupTopicPartitions(self.group_id, parts)]
        (future,) = admin.list_consumer_group_offsets(asked).values()
        answered = future.result(10).topic_partitions
        return {each.partition: each.offset for each in answered if each.offset >= 0}

    def generation(self) -> int:
        """Returns the group's last generation with an assignment, from `__consumer_offsets`."""
        generation = 0
        for _, _, _, key, value in ConfluentClient().consume(self.bootstrap, [OFFSETS_TOPIC]):
            record = read_record(key or b"", value)
            if record.key == GroupMetadataKey(group=self.group_id):
                assert isinstance(record.value, GroupMetadataValue)
                generation = record.value.generation
        return generation

    def state(self) -> str:
        """Returns the broker's description of the group, for a message."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (future,) = admin.describe_consumer_groups([self.group_id]).values()
        try:
            group = future.result(10)
        except Exception as error:  # noqa: BLE001 - it becomes part of a message
            return str(error)
        return f"{group.state.name} with {len(group.members)} members"

    def end(self) -> None:
        """Kill all processes that are still running."""
        self._is_writing.clear()
        for member in self.members:
            if member.process.poll() is None:
                member.kill()


def until(what: str, is_so: Callable[[], bool], describe: Callable[[], str]) -> None:
    """Wait for something that other processes cause. On timeout the message has the state."""
    end_s = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end_s, f"{what}: not after {SECONDS_MAX} s; {describe()}"
        time.sleep(0.1)
