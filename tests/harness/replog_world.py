"""A simulated cluster of replog copies: a leader, three learners, their disks, and the network.

One seed decides everything: the order of events, what the network loses, repeats and delays, when the
power of which machine goes (in the middle of any disk operation) and what its disk then still has. The
clock is virtual, so a run takes as long as its computations. After each event `check` compares all
copies with the model, which knows every committed entry.

    world = World(seed, Placement.IN_LOG); world.run(400); world.settle()
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from replog.bound import bound_bytes
from replog.compactor import LogCompactor, Placement
from replog.digest import set_digest
from replog.entry import FIRST_INDEX, NO_TERM, Entry, Kind
from replog.following import Follower
from replog.in_log import InLog
from replog.independent import Independent
from replog.leader_external import LeaderExternal
from replog.messages import Answer, Request
from replog.offline_merge.merging_snapshotter import OfflineMerge
from replog.offline_merge.plan import MergePlan
from replog.replica import Replica, Role
from replog.serving import answer
from replog.trigger import CompactionSettings, Reason
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.replog_machine import KeyValueMachine
from tests.harness.replog_merging import MERGER, SimulatedChild

DIRECTORY = "/data/replog"
NODES = 4
COMPACTORS: dict[Placement, type[LogCompactor]] = {
    Placement.INDEPENDENT: Independent,
    Placement.LEADER_EXTERNAL: LeaderExternal,
    Placement.IN_LOG: InLog,
}


class PowerCut(Exception):
    """The machine lost its power during a disk operation."""


class Model:
    """Every committed entry, and the digest of the state at every end."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.machine = KeyValueMachine()
        self.digests = {FIRST_INDEX: 0}
        self.end = FIRST_INDEX

    def commit(self, entry: Entry) -> None:
        if entry.index < self.end:
            assert self.entries[entry.index] == entry, "a committed entry has changed"
            return
        assert entry.index == self.end, "a committed entry is missing"
        self.entries[entry.index] = entry
        if entry.kind is Kind.COMMAND:
            self.machine.apply(entry.index, entry.payload)
        self.end = entry.index + 1
        self.digests[self.end] = self.machine.digest()


class Node:
    """One machine: its disk, and while it has power its replica."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.disk = MemoryFileSystem()
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("/data")
        self.disk.sync_directory("/")
        self.is_up = False
        self.leads = False
        self.operations_left: int | None = None
        self.floor = FIRST_INDEX
        self.replica: Replica
        self.compactor: LogCompactor
        self.follower: Follower
        self.installs = self.snapshots = 0
        self.children: list[SimulatedChild] = []
        self.checked: tuple[int, int, int, Role] | None = None

    def start(self) -> None:
        """Recover, and lead or follow."""
        self.disk.on_operation = self.operated
        world = self.world
        self.replica = Replica(
            self.disk,
            DIRECTORY,
            world.new_machine(),
            clock_ms=lambda: world.now,
            segment_bytes=world.settings.segment_bytes,
        )
        self.compactor = self.new_compactor()
        self.replica.open()
        self.compactor.opened()
        self.follow()
        self.is_up = True
        if self.leads:
            self.lead(max(world.term, self.replica.log.last_term))

    def new_compactor(self) -> LogCompactor:
        world = self.world
        if world.merges:
            merging = OfflineMerge(MERGER, start=self.start_child, bytes_min=0)
            return Independent(self.replica, world.settings, merging)
        return COMPACTORS[world.placement](self.replica, world.settings)

    def start_child(self, plan: MergePlan, seconds: float) -> SimulatedChild:
        """Start a merge on this disk, whose process may be killed during one of its operations, or may
        write garbage."""
        chance = self.world.child_random
        left = chance.randrange(6) if chance.random() < 0.4 else None
        is_careless = chance.random() < 0.1
        child = SimulatedChild(self.disk, plan, operations_left=left, is_careless=is_careless)
        self.children.append(child)
        return child

    def follow(self) -> None:
        self.replica.follow()
        self.follower = Follower(
            self.replica,
            self.compactor,
            self.world.new_machine,
            segment_bytes=self.world.settings.segment_bytes,
        )

    def lead(self, term: int) -> None:
        self.follower.stop()
        self.replica.lead(term)
        self.world.committed(self)
        self.world.compact(self)

    def operated(self, action: str, path: str) -> None:
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left <= 0:
                raise PowerCut

    def lose_power(self) -> None:
        """Go down now; keep on the disk what a power cut leaves."""
        world = self.world
        loss = world.random.choice((Loss.EVERYTHING, Loss.NOTHING, Loss.TORN, Loss.TORN))
        self.disk.on_operation = None
        self.disk = self.disk.after_crash(loss, world.random)
        self.is_up, self.operations_left, self.floor = False, None, FIRST_INDEX

    def has_changed(self) -> bool:
        """Returns whether anything may have changed since the last call."""
        replica = self.replica
        before, self.checked = self.checked, (
            id(replica), self.disk.operations, replica.applied_end, replica.role,
        )  # fmt: skip
        return before != self.checked

    @property
    def size_bytes(self) -> int:
        """The bytes of the log's files."""
        names = self.disk.list(DIRECTORY)
        kinds = (".replog", ".checkpoint", ".part")
        return sum(self.disk.size(f"{DIRECTORY}/{name}") for name in names if name.endswith(kinds))


class World:
    """The cluster, its network and its arbiter."""

    new_machine: Callable[[], KeyValueMachine] = KeyValueMachine

    def __init__(self, seed: int, placement: Placement) -> None:
        self.random = Random(seed)
        self.placement = placement
        self.settings = CompactionSettings(
            u=self.random.choice((0.3, 0.6, 1.0)),
            replay_ms=self.random.choice((1.0, 10_000.0)),
            age_ms=self.random.choice((1_000.0, 1e12)),
            snapshots_keep=self.random.choice((1, 1, 2))
            if placement is not Placement.IN_LOG
            else 1,
            catchup_entries=self.random.choice((0, 5, 20)),
            floor_bytes=400,
            segment_bytes=self.random.choice((300, 900)),
        )
        self.is_quiet = seed % 2 == 1
        # Of their own, so that a seed has the same events with and without children.
        self.child_random = Random(seed)
        is_independent = placement is Placement.INDEPENDENT
        self.merges = is_independent and self.child_random.random() < 0.5
        """Whether child processes make the snapshots."""
        self.now = 0.0
        self.term = 1
        self.model = Model()
        self.is_calm = False
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.cut_off: set[int] = set()
        self.nodes = [Node(self, number) for number in range(NODES)]
        self.nodes[0].leads = True
        for node in self.nodes:
            node.start()
        self.slow = self.nodes[self.random.randrange(1, NODES)]

    @property
    def leader(self) -> Node:
        (leader,) = [node for node in self.nodes if node.leads]
        return leader

    def run(self, steps: int) -> None:
        """Let `steps` events happen, with faults."""
        for node in self.nodes:
            self.later(self.poll, node)
        self.later(self.client)
        self.later(self.trouble)
        for _ in range(steps):
            self.next_event()

    def settle(self) -> None:
        """Heal everything; all copies must reach the leader's state."""
        self.is_calm = True
        self.cut_off.clear()
        for node in self.nodes:
            node.operations_left = None
            if not node.is_up:
                node.start()
        for _ in range(20_000):
            self.next_event()
            if all(node.replica.applied_end == self.model.end for node in self.nodes):
                break
        digests = {set_digest(node.replica.machine.snapshot()) for node in self.nodes}
        assert digests == {self.model.digests[self.model.end]}, "the copies differ in the end"
        ends = {node.replica.applied_end for node in self.nodes}
        assert ends == {self.model.end}, "a copy does not catch up"

    def next_event(self) -> None:
        self.now, _, event = heapq.heappop(self.events)
        event()
        self.check()

    def later(self, event: Callable[..., None], *arguments: object, ms: float = 10.0) -> None:
        """Let an event happen after about `ms`."""
        self.sequence += 1
        at = self.now + self.random.uniform(0.2, 2.0) * ms
        heapq.heappush(self.events, (at, self.sequence, lambda: event(*arguments)))

    def on(self, node: Node, work: Callable[..., None], *arguments: object) -> None:
        """Do work on a node that has power; it may lose it meanwhile."""
        if node.is_up:
            try:
                work(*arguments)
            except PowerCut:
                node.lose_power()
                self.later(self.restart, node, ms=200)

    # Events.

    def client(self) -> None:
        """Write some commands on the leader."""
        if not self.is_calm:
            self.later(self.client)
        self.on(self.leader, self.write, self.leader)

    def write(self, node: Node) -> None:
        commands = [self.command() for _ in range(self.random.randrange(1, 4))]
        node.replica.append([(Kind.COMMAND, command) for command in commands])
        self.committed(node)
        node.replica.apply_confirmed()
        self.compact(node)

    def command(self) -> bytes:
        key = b"%d" % self.random.randrange(12)
        if self.random.random() < 0.25:
            return key
        return key + b"=" + b"v%d" % self.random.randrange(9) * self.random.randrange(1, 30)

    def committed(self, node: Node) -> None:
        """Tell the model what the leader has made durable."""
        for entry in node.replica.entries(max(self.model.end, node.replica.log.start)):
            self.model.commit(entry)

    def compact(self, node: Node) -> None:
        """Begin a snapshot if one is due, and let it proceed later."""
        compactor = node.compactor
        if (
            node.replica.role is not Role.INSTALLING
            and compactor.due(is_quiet=self.is_quiet) is not None
        ):
            compactor.begin()
            self.committed_by(node)
        if compactor.is_snapshotting:
            self.later(self.on, node, self.snapshot, node, node.compactor, ms=5)

    def committed_by(self, node: Node) -> None:
        if node.replica.role is Role.LEADER:
            self.committed(node)

    def snapshot(self, node: Node, compactor: LogCompactor) -> None:
        """Write a part of the snapshot that is under way, or complete it."""
        if compactor is not node.compactor or not compactor.is_snapshotting:
            return
        if not self.is_calm and self.random.random() < 0.02:
            # As when the disk is full.
            compactor.abandon()
        elif compactor.step():
            self.committed_by(node)
        else:
            compactor.finish()
            node.snapshots += 1
            self.committed_by(node)
        self.compact(node)

    def poll(self, node: Node) -> None:
        """Ask the leader, if this is a learner."""
        self.later(self.poll, node, ms=40 if node is self.slow else 8)
        self.on(node, self.ask, node)

    def ask(self, node: Node) -> None:
        if node is not self.leader:
            self.send(node, self.leader, self.arrive, node.follower, node.follower.request())
            self.compact(node)

    def arrive(self, node: Node, follower: Follower, request: Request) -> None:
        """A request arrives at the leader."""
        if node.replica.role is Role.LEADER:
            found = answer(node.replica, request, bytes_max=self.random.choice((50, 400)))
            for other in self.nodes:
                if other.follower is follower:
                    self.send(node, other, self.receive, follower, found)

    def receive(self, node: Node, follower: Follower, found: Answer) -> None:
        """An answer arrives at a learner."""
        if node.follower is follower and node.replica.role is not Role.LEADER:
            follower.receive(found)
            node.installs += follower.installs
            follower.installs = 0
            self.compact(node)

    def send(self, source: Node, target: Node, event: Callable[..., None], *parts: object) -> None:
        """Deliver a message never, once or twice, after a while."""
        times = 1 if self.is_calm else self.random.choice((0, 1, 1, 1, 1, 1, 1, 2))
        for _ in range(times):
            ms = 3.0 if self.is_calm or self.random.random() < 0.8 else 150.0
            self.later(self.deliver, source, target, event, parts, ms=ms)

    def deliver(
        self, source: Node, target: Node, event: Callable[..., None], parts: tuple[object, ...]
    ) -> None:
        if not {source.number, target.number} & self.cut_off:
            self.on(target, event, target, *parts)

    def trouble(self) -> None:
        """Something happens to a machine or to the network."""
        if self.is_calm:
            return
        self.later(self.trouble, ms=40)
        chance = self.random.random()
        node = self.random.choice(self.nodes)
        if chance < 0.35:
            node.operations_left = self.random.randrange(1, 12)
        elif chance < 0.6:
            self.cut_off ^= {self.random.choice((self.slow.number, node.number))}
        elif chance < 0.8:
            self.promote(node)

    def restart(self, node: Node) -> None:
        """The machine has power again."""
        if node.is_up:
            return
        try:
            node.start()
        except PowerCut:
            node.lose_power()
            self.later(self.restart, node)

    def promote(self, node: Node) -> None:
        """Make a learner that has every committed entry the leader; the old leader is fenced first."""
        if not node.is_up or node.leads or not self.may_lead(node):
            return
        old = self.leader
        old.leads = False
        if old.is_up:
            old.compactor.abandon()
            old.follow()
        self.term += 1
        node.leads = True
        self.on(node, node.lead, self.term)

    def may_lead(self, node: Node) -> bool:
        """Returns whether the arbiter lets a copy lead."""
        log = node.replica.log
        last = self.model.entries.get(self.model.end - 1)
        # A tail that a former leader had not finished may be as long as what was committed since.
        has_all = (log.end, log.last_term) == (self.model.end, last.term if last else NO_TERM)
        return node.replica.role is not Role.INSTALLING and has_all

    # The invariants.

    def check(self) -> None:
        """Compare every copy that has power with the model."""
        for node in self.nodes:
            if node.is_up and node.has_changed():
                self.check_state(node)
                self.check_files(node)

    def check_state(self, node: Node) -> None:
        replica = node.replica
        assert replica.applied_end in self.model.digests, (
            "an entry that is not committed was applied"
        )
        expected = self.model.digests[replica.applied_end]
        assert set_digest(replica.machine.snapshot()) == expected, "the state is not the model's"
        assert replica.machine.digest() == expected, "the digest is not that of the state"
        assert replica.applied_end >= node.floor, "the state went back"
        node.floor = replica.applied_end
        assert replica.wanted is None, "a copy was reported as different"
        if replica.role is Role.LEADER:
            assert replica.applied_end == self.model.end, "the leader lacks committed entries"

    def check_files(self, node: Node) -> None:
        replica, compactor = node.replica, node.compactor
        log = replica.log
        assert log.start <= replica.snapshot.end, "the log starts above the last snapshot"
        if replica.snapshot.end > FIRST_INDEX and not replica.is_snapshot_in_log:
            assert node.disk.exists(replica.checkpoints.path(replica.snapshot)), (
                "a snapshot is gone"
            )
        oldest = compactor.oldest_needed()
        first = log.segments[0]
        assert len(log.segments) == 1 or first.end > oldest - self.settings.catchup_entries, (
            "a segment that is not needed was kept"
        )
        use = compactor.disk_use()
        bound = bound_bytes(self.settings, use) + node.follower.writing_bytes()
        assert node.size_bytes <= bound, f"{node.size_bytes} bytes on disk, bound {bound}: {use}"
        if replica.role is Role.LEADER and not compactor.is_snapshotting:
            # Age is looked at when something is appended.
            assert compactor.due() in (None, Reason.AGE), "the replay is longer than it may be"
