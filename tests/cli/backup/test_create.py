"""`kompakt backup create`: the snapshot that it asks for, and when it drops it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cli.backup import create
from cli.backup.create import create_backup
from cli.base.command_end import EXIT_UNREACHABLE, CommandFailed
from storage.backup.make_backup import Progress, make_backup
from storage.files.errors import NoSpace
from storage.files.files import disk_error
from storage.files.local_files import LocalFileSystem
from tests.harness.backups import opened, problems
from tests.harness.snapshot_world import SnapshotWorld


class Broker:
    """The HTTP API of a broker as far as it is about snapshots, and the broker's files."""

    def __init__(self, folder: Path) -> None:
        self.world = SnapshotWorld(LocalFileSystem(), Random(0), root=str(folder))
        self.world.create_topic("orders")
        for _ in range(10):
            self.world.change()
        self.paths: dict[str, str] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.refuses_drops = False
        broker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                snapshot_id = self.path.rpartition("/")[2]
                path = broker.paths.get(snapshot_id)
                if path is None:
                    self.answer(404, {"error": f"there is no snapshot {snapshot_id}"})
                elif not path:
                    reason = {"is_complete": False, "reason": "it was not completed"}
                    self.answer(200, {"id": snapshot_id, **reason})
                else:
                    self.answer(200, {"id": snapshot_id, "is_complete": True, "path": path})

            def do_POST(self) -> None:
                made = broker.make()
                self.answer(201, {"id": made, "path": broker.paths[made]})

            def do_DELETE(self) -> None:
                if broker.refuses_drops:
                    self.answer(500, {"error": "the disk failed"})
                    return
                del broker.paths[self.path.rpartition("/")[2]]
                self.answer(200, {})

            def answer(self, status: int, content: object) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                broker.requests.append((self.command, self.path, body))
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def make(self) -> str:
        path = self.world.snapshot()
        snapshot_id = path.split("/")[-2]
        self.paths[snapshot_id] = path
        return snapshot_id

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def created(broker: Broker, place: Path, snapshot: str | None = None, **options: bool) -> int:
    given = {"keeps_snapshot": False, "as_json": False, **options}
    return create_backup(place, broker.url, snapshot, None, **given)


def test_a_new_snapshot_is_copied_and_dropped(
    broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert created(broker, place) == 0

    store = opened(LocalFileSystem(), str(place))
    (backup_id,) = store.ids()
    assert problems(store) == []
    assert broker.requests == [
        ("POST", "/v1/snapshots", {"topics": None}),
        ("DELETE", f"/v1/snapshots/{backup_id}", None),
    ]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"backup {backup_id} is in {place}: 1 topic, 2 partitions, ")
    assert shown[1].startswith("copied ")


def test_the_snapshot_is_kept_on_request(broker: Broker, place: Path) -> None:
    created(broker, place, keeps_snapshot=True)

    assert list(broker.paths) == opened(LocalFileSystem(), str(place)).ids()


def test_an_existing_snapshot_is_copied_and_stays(
    broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot_id = broker.make()
    other = broker.make()

    created(broker, place, snapshot_id, as_json=True)
    created(broker, place, broker.paths[other], as_json=True)

    assert opened(LocalFileSystem(), str(place)).ids() == [snapshot_id, other]
    assert list(broker.paths) == [snapshot_id, other]
    first = json.loads(capsys.readouterr().out.split("\n{")[0])
    assert first["id"] == snapshot_id
    assert first["files"] == first["files_read"] > 0
    broker.paths["half"] = ""
    with pytest.raises(CommandFailed, match="there is no snapshot missing"):
        created(broker, place, "missing")
    with pytest.raises(CommandFailed, match="snapshot half: it was not completed"):
        created(broker, place, "half")


def test_a_snapshot_is_of_the_topics_that_are_named(broker: Broker, place: Path) -> None:
    given = ["orders,prices", "users"]
    create_backup(place, broker.url, None, given, keeps_snapshot=False, as_json=False)

    assert broker.requests[0][2] == {"topics": ["orders", "prices", "users"]}
    with pytest.raises(CommandFailed, match="does not go with --snapshot"):
        create_backup(place, broker.url, "x", given, keeps_snapshot=False, as_json=False)


def test_a_snapshot_is_dropped_if_its_copy_fails(
    broker: Broker, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NoSpace("append to", "/backups/x", 28, "no space")

    monkeypatch.setattr(create, "make_backup", fail)

    with pytest.raises(CommandFailed, match=r"the disk is full .* no backup was made"):
        created(broker, place)

    assert broker.paths == {}
    assert opened(LocalFileSystem(), str(place)).ids() == []


def test_sigterm_ends_the_copy_and_drops_the_snapshot(
    broker: Broker, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def interrupted(fs: Any, store: Any, plan: Any, _: Progress) -> object:
        return make_backup(fs, store, plan, lambda count: os.kill(os.getpid(), signal.SIGTERM))

    monkeypatch.setattr(create, "make_backup", interrupted)

    with pytest.raises(KeyboardInterrupt):
        created(broker, place)

    assert broker.paths == {}
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.undo()
    assert created(broker, place) == 0


def test_a_snapshot_that_could_not_be_dropped_is_named(
    broker: Broker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.refuses_drops = True

    assert created(broker, place) == 0

    (left,) = broker.paths
    error = capsys.readouterr().err
    assert error.startswith(f"kompakt: snapshot {left} is still there and takes disk space: ")
    assert f"remove it with kompakt snapshot drop {left}" in error


def test_files_that_may_not_be_read_name_the_user_to_be(
    broker: Broker, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise disk_error("open", "/data/x", PermissionError(13, "Permission denied"))

    monkeypatch.setattr(create, "files_of_snapshot", refuse)

    with pytest.raises(CommandFailed, match="run this as the user of the broker"):
        created(broker, place)


def test_a_broker_elsewhere_is_not_backed_up_from_here(broker: Broker, place: Path) -> None:
    snapshot_id = broker.make()
    broker.paths[snapshot_id] = "/elsewhere/snapshots/x/snapshot.json"

    with pytest.raises(CommandFailed, match="run this on the broker's machine"):
        created(broker, place, snapshot_id)

    assert not place.exists()


def test_no_broker_is_an_exit_code_of_its_own(place: Path) -> None:
    with pytest.raises(CommandFailed) as ended:
        create_backup(place, "http://127.0.0.1:9", None, None, keeps_snapshot=False, as_json=False)

    assert ended.value.exit_code == EXIT_UNREACHABLE


def test_a_backup_inside_of_a_log_directory_is_refused(broker: Broker) -> None:
    inside = Path(broker.world.directories["B" * 22]) / "backups"

    with pytest.raises(CommandFailed, match="would be lost with it"):
        created(broker, inside)

    assert not inside.exists()
    assert broker.paths == {}
