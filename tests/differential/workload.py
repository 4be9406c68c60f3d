"""Generated workloads: the same batches, rolls, clock and passes for two cleaners.

A workload is a list of steps, made from a profile, a codec and a seed alone. Batches carry their
offsets, as a follower gets them, so they may leave gaps and holes as a cleaned leader's do. Every
workload ends with passes far apart in time, each after a batch with a key of its own, and after them
nothing of a producer, a tombstone or a transaction is still pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from protocol.records.batch_header import TimestampType
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Codec, Record, build_batch, build_control_batch

START_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 10_000
PRODUCER_EXPIRATION_MS = 86_400_000
ROUNDS = 6
SEQUENCE_END = 1 << 31
SEGMENT_BYTES = 600_000
"""Kafka refuses a batch that is larger."""


@dataclass(frozen=True, slots=True)
class Append:
    """A batch with its offsets and leader epoch."""

    batch: bytes
    record_count: int


@dataclass(frozen=True, slots=True)
class Roll:
    """Begin a new active segment."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Let time pass, the same for both."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Expire:
    """Forget idle producers."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """A clean stop and a start."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Run passes, usually until the log is no longer eligible; then compare."""

    passes_max: int = 200
    is_compared: bool = True


Step: TypeAlias = Append | Roll | Advance | Expire | Reopen | Clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the batches of a workload look like; shares are between 0 and 1."""

    name: str
    keys: int = 40
    records: tuple[int, int] = (1, 12)
    """Records a batch, from and to."""
    value_bytes: tuple[int, int] = (0, 60)
    batches: int = 25
    """Batches a round."""
    tombstones: float = 0.15
    unkeyed: float = 0.0
    holes: float = 0.0
    """Records that are missing inside their batch."""
    gaps: float = 0.0
    """Batches before which offsets are missing."""
    producers: int = 0
    """Idempotent producers; 0 for none."""
    transactions: float = 0.0
    """Producers that write transactions."""
    stamped: float = 0.0
    """Batches that come with a delete horizon."""
    append_time: float = 0.0
    """Batches that have the broker's time."""
    map_keys: int = 10_000
    """What an offset map holds; with fewer than a round has, a pass is cut up."""
    converges: bool = False
    """Whether the logs only agree in the end: time goes by within cut passes, and passes meet
    transactions that are not decided."""


PROFILES: Sequence[Profile] = (
    Profile(name="small-batches"),
    Profile(name="one-record-a-batch", records=(1, 1), batches=60, keys=15),
    Profile(name="large-batches", records=(100, 300), batches=6, keys=400),
    Profile(name="large-values", records=(1, 4), value_bytes=(40_000, 140_000), batches=6, keys=8),
    Profile(name="many-tombstones", tombstones=0.6, keys=20),
    Profile(name="few-repeats", keys=5_000, batches=40),
    Profile(name="holes-and-gaps", holes=0.4, gaps=0.3),
    Profile(name="unkeyed-records", unkeyed=0.2),
    Profile(name="producers", producers=4, records=(1, 5), keys=12),
    Profile(name="horizons-from-a-leader", stamped=0.3, tombstones=0.4),
    Profile(name="log-append-time", append_time=0.5),
    Profile(name="small-map", map_keys=40, keys=300),
    Profile(name="transactions", producers=4, transactions=1.0, records=(1, 5), keys=25),
    Profile(name="time-in-cut-passes", map_keys=40, keys=200, tombstones=0.4, converges=True),
    Profile(
        name="open-transactions", producers=4, transactions=0.8, records=(1, 5), keys=25,
        tombstones=0.3, converges=True,
    ),
    Profile(
        name="transactions-cut", producers=3, transactions=0.7, records=(1, 8), keys=60,
        map_keys=25, tombstones=0.4, gaps=0.1, holes=0.1, unkeyed=0.05,
    ),
    Profile(
        name="everything", producers=3, holes=0.1, gaps=0.1, unkeyed=0.05, stamped=0.1,
        append_time=0.2, map_keys=120, keys=100, records=(1, 40),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What both cleaners are given."""

    profile: Profile
    codec: Codec | None
    """None for a mixture of all."""
    seed: int

    @property
    def name(self) -> str:
        codec = "mixed" if self.codec is None else self.codec.name.lower()
        return f"{self.profile.name}/{codec}/{self.seed}"

    def steps(self) -> Iterator[Step]:
        writer = Writer(self)
        for _ in range(ROUNDS):
            yield from writer.round()
        yield from writer.settle()
        yield from writer.pass_behind_a_new_key(Clean())


@dataclass(slots=True)
class Producer:
    """An idempotent producer, which sends without gaps until it comes back with a newer epoch."""

    producer_id: int
    is_transactional: bool
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    """Whether its transaction has data and no marker."""

    def begin_epoch(self) -> None:
        self.epoch, self.sequence = self.epoch + 1, 0


@dataclass(slots=True)
class Writer:
    """Writes one workload."""

    workload: Workload
    random: Random = field(init=False)
    now_ms: int = START_MS
    next_offset: int = 0
    leader_epoch: int = 0
    producers: list[Producer] = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.workload.name)
        profile = self.workload.profile
        self.producers = [
            Producer(
                1000 + number,
                is_transactional=self.random.random() < profile.transactions,
                sequence=self.random.choice((0, SEQUENCE_END - 20)),
            )
            for number in range(profile.producers)
        ]

    def round(self) -> Iterator[Step]:
        """Batches in some segments, then a pass."""
        profile = self.workload.profile
        for _ in range(self.random.randint(1, profile.batches)):
            yield self.batch()
            yield from self.markers(0.1)
            if self.random.random() < 0.08:
                yield Roll()
            if self.random.random() < 0.02:
                self.leader_epoch += 1
        decides_all = profile.transactions > 0 and not profile.converges
        if decides_all:
            yield from self.markers(1.0)
        if decides_all or self.random.random() < 0.8:
            yield Roll()
        yield self.advance(self.random.choice((0, 1, 3_000, DELETE_RETENTION_MS, 25_000)))
        if self.random.random() < 0.2:
            yield Reopen()
        yield Clean(passes_max=1, is_compared=False) if profile.converges else Clean()

    def settle(self) -> Iterator[Step]:
        """Passes that leave nothing to do: horizons pass, then the producers are forgotten."""
        clean = Clean(is_compared=not self.workload.profile.converges)
        yield from self.markers(1.0)
        for _ in range(4):
            yield from self.pass_behind_a_new_key(clean)
        yield self.advance(PRODUCER_EXPIRATION_MS)
        yield Expire()
        for _ in range(4):
            yield from self.pass_behind_a_new_key(clean)

    def pass_behind_a_new_key(self, clean: Clean) -> Iterator[Step]:
        yield self.advance(2 * DELETE_RETENTION_MS)
        record = Record(
            offset=self.next_offset,
            timestamp=self.now_ms,
            key=b"settled-%d" % self.next_offset,
            value=b"",
        )
        yield Append(bytes(self.build([record], self.next_offset)), 1)
        yield Roll()
        yield clean

    def advance(self, milliseconds: int) -> Advance:
        self.now_ms += milliseconds
        return Advance(milliseconds)

    def batch(self) -> Append:
        """One batch, where the log ends or a gap behind it."""
        profile = self.workload.profile
        if self.random.random() < profile.gaps:
            self.next_offset += self.random.randint(1, 2_000)
        count = self.random.randint(*profile.records)
        base = self.next_offset
        offsets = [
            offset for offset in range(base, base + count) if self.random.random() >= profile.holes
        ] or [base]
        records = [self.record(offset) for offset in offsets]
        producer = self.random.choice(self.producers) if self.producers else None
        batch = self.build(records, base + count - 1, producer)
        return Append(bytes(batch), len(records))

    def markers(self, share: float) -> Iterator[Step]:
        """End some of the transactions under way; now and then one that has no data here."""
        for producer in self.producers:
            is_ended = producer.is_open and self.random.random() < share
            is_without_data = producer.is_transactional and self.random.random() < 0.01
            if is_ended or is_without_data:
                yield self.marker(producer)

    def marker(self, producer: Producer) -> Append:
        """The end of a transaction, with an epoch of its own where the coordinator is of KIP-890."""
        if self.random.random() < 0.3:
            producer.begin_epoch()
        producer.is_open = False
        verdict = self.random.choice((ControlType.COMMIT, ControlType.ABORT))
        batch = build_control_batch(
            TransactionMarker(type=verdict, coordinator_epoch=0),
            offset=self.next_offset,
            timestamp=self.now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            leader_epoch=self.leader_epoch,
        )
        self.next_offset += 1
        return Append(bytes(batch), 1)

    def build(
        self, records: list[Record], last_offset: int, producer: Producer | None = None
    ) -> bytearray:
        profile, base = self.workload.profile, self.next_offset
        self.next_offset = last_offset + 1
        count = last_offset + 1 - base
        if producer is not None and not producer.is_open and self.random.random() < 0.05:
            producer.begin_epoch()
        has_broker_time = self.random.random() < profile.append_time
        is_stamped = self.random.random() < profile.stamped
        horizon_ms = self.now_ms + self.random.randint(-5_000, 15_000)
        batch = build_batch(
            records,
            base_offset=base,
            last_offset=last_offset,
            leader_epoch=self.leader_epoch,
            codec=self.codec(),
            timestamp_type=TimestampType(int(has_broker_time)),
            max_timestamp=self.now_ms if has_broker_time else None,
            delete_horizon_ms=horizon_ms if is_stamped else None,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            base_sequence=-1 if producer is None else producer.sequence,
            is_transactional=producer is not None and producer.is_transactional,
        )
        if producer is not None:
            producer.sequence = (producer.sequence + count) % SEQUENCE_END
            producer.is_open = producer.is_transactional
        return batch

    def codec(self) -> Codec:
        chosen = self.workload.codec
        return self.random.choice(list(Codec)) if chosen is None else chosen

    def record(self, offset: int) -> Record:
        profile = self.workload.profile
        is_unkeyed = self.random.random() < profile.unkeyed
        is_tombstone = self.random.random() < profile.tombstones
        return Record(
            offset=offset,
            timestamp=self.timestamp(),
            key=None if is_unkeyed else self.key(),
            value=None if is_tombstone else self.value(),
            headers=(("trace", b"%d" % offset), ("none", None))
            if self.random.random() < 0.1
            else (),
        )

    def timestamp(self) -> int:
        """Mostly now; without producers, whose expiry counts from it, also long ago and to come."""
        if self.producers or self.random.random() < 0.8:
            return self.now_ms
        return self.random.choice((-1, 0, self.now_ms - 10**9, self.now_ms + 10**9))

    def key(self) -> bytes:
        """Low numbers come more often; one key is empty."""
        number = int(self.workload.profile.keys * self.random.random() ** 2)
        return b"%d" % number if number else b""

    def value(self) -> bytes:
        size = self.random.randint(*self.workload.profile.value_bytes)
        return bytes(self.random.choices(b"abcdefgh", k=min(size, 64))) * (size // 64 + 1)
