"""One of two machines of a failover: two disks whose broker serves clients, or follows the other one.

Clients have an address of their own at each site, which is open only while the site serves them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from storage.files.paths import is_topic_put_aside, parse_topic_directory
from tests.harness.broker_process import BrokerProcess, free_ports
from tests.harness.on_disk_reader import Log, read_log
from tests.harness.standby_process import Json, WholeStandby

DISKS = ("data", "data-2")


class Site:
    """One machine. Its process is `kompakt serve` or `kompakt standby`, or none runs."""

    def __init__(self, folder: Path, overrides: dict[str, object]) -> None:
        self.folder = folder
        self._clients, self._internal, http = free_ports(3)
        listeners = [("PLAINTEXT", self._clients), ("INTERNAL", self._internal)]
        self._overrides = {
            **overrides,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "http.listener": f"127.0.0.1:{http}",
            "log.dirs": ",".join(str(folder / each) for each in DISKS),
        }
        self.serving = BrokerProcess(folder, self._overrides)
        self.serving.port, self.serving.http_port = self._clients, http
        self.following: WholeStandby | None = None
        """The standby's process, also once it is promoted; None if `serving` is the process."""

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self._clients}"

    @property
    def internal_address(self) -> str:
        """Where standbys connect."""
        return f"127.0.0.1:{self._internal}"

    @property
    def data(self) -> Path:
        """The directory with the metadata."""
        return self.folder / DISKS[0]

    def serve(self) -> None:
        """Start `kompakt serve`, and wait until it serves clients."""
        self.following = None
        self.serving.start()

    def follow(self, leader: Site) -> WholeStandby:
        """Start `kompakt standby` of the other site; a broker's directory rejoins. Returns it."""
        self.following = WholeStandby(
            self.folder, leader.internal_address, self._overrides, rejoins=self.data
        )
        if not self.data.exists():
            self.following.arguments = ()
        self.following.port = self._clients
        self.following.start()
        return self.following

    def promote(self, *, force: bool = False, wait_seconds: float = 60.0) -> tuple[int, Json]:
        """Let the standby take over. Returns the HTTP status and the answer."""
        assert self.following is not None
        return self.following.promote(force=force, wait_seconds=wait_seconds)

    def wait_until_level(self) -> None:
        """Wait until the standby has what its source had a moment ago, and copies every partition."""
        assert self.following is not None
        self.following.wait_until_ready()

    @property
    def is_running(self) -> bool:
        process = self.serving if self.following is None else self.following
        return process._process is not None

    def kill(self) -> None:
        """Send SIGKILL to whatever runs."""
        (self.serving if self.following is None else self.following).kill()

    def stop(self) -> None:
        """Send SIGTERM; it must end well."""
        process = self.serving if self.following is None else self.following
        assert process.stop() == 0, process.tail()

    def tail(self) -> str:
        """Returns the end of its output, for messages."""
        return (self.serving if self.following is None else self.following).tail()

    # ---------------------------------------------------------------- what is on its disks

    def logs(self, topic: str) -> dict[int, Log]:
        """Returns the logs of a topic's partitions, as they are on the disks. Nothing may run."""
        return {
            int(each.name): read_log(each)
            for folder in self._folders(topic)
            for each in folder.iterdir()
            if each.name.isdecimal()
        }

    def put_aside(self, topic: str, partition: int) -> list[Log]:
        """Returns the logs that resyncs of a partition have put aside."""
        return [
            read_log(each)
            for folder in self._folders(topic)
            for each in folder.glob(f"{partition}.aside.*")
        ]

    def remove_what_is_put_aside(self) -> None:
        """Free the space of what resyncs have put aside, as an operator does who no longer needs it."""
        for disk in DISKS:
            for topic in (self.folder / disk).iterdir():
                if is_topic_put_aside(topic.name):
                    shutil.rmtree(topic)
                elif parse_topic_directory(topic.name) is not None:
                    # Topics come and go meanwhile.
                    with suppress(FileNotFoundError):
                        for each in topic.glob("*.aside.*"):
                            shutil.rmtree(each)

    def _folders(self, topic: str) -> Iterator[Path]:
        for disk in DISKS:
            for each in (self.folder / disk).iterdir():
                is_topics = parse_topic_directory(each.name) is not None
                if is_topics and each.name.rpartition(".")[0] == topic:
                    yield each
