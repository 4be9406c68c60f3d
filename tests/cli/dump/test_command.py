"""`kompakt dump-log` prints every kind of file that a broker writes, and verifies a directory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.base.text import bytes_text, name_text, time_text
from cli.commands import run_command
from cli.dump.kinds import Kind, kind_of
from protocol.records.record_batch import Codec, Record, build_batch
from replog.trigger import CompactionSettings
from server.metadata.log import MetadataLog
from server.metadata.machine import Operation
from server.metadata.old_files import State
from storage.files.local_files import LocalFileSystem, ReadOnlyFileSystem
from storage.files.signing_key import SigningKey
from storage.formats.key_sidecar import sealed
from storage.formats.ledger_entry import NO_HEAD, encode_entry
from storage.ledger.pass_history import HEADER, encode_line
from storage.log.log import PartitionLog
from tests.harness.old_metadata import write_old_log, write_old_snapshot
from tests.harness.served_broker import NOW_MS, serving_broker
from tests.harness.verification import findings_in

ROOT = Path(__file__).resolve().parents[3]
CLEANING = {
    "log_cleaner_enable": "true",
    "log_cleaner_backoff_ms": "20",
}
ESCAPE = b"\x1b[31m"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped broker that has compacted a topic."""
    path = tmp_path_factory.mktemp("dumped") / "data"
    asyncio.run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    async with serving_broker(path, **CLEANING) as served:
        await served.create(
            "table",
            cleanup_policy="compact",
            segment_ms="100",
            min_cleanable_dirty_ratio="0",
            index_interval_bytes="200",
        )
        await served.create("journal", index_interval_bytes="200", segment_bytes=str(1 << 20))
        for round_ in range(30):
            await served.produce("table", _batch(round_, producer_id=5))
            await served.produce("journal", _batch(round_, codec=Codec.ZSTD))
        log = served.log("table")
        while not _is_clean(log):  # noqa: ASYNC110 - the cleaner tells nobody
            await asyncio.sleep(0.02)


def _batch(round_: int, **settings: Any) -> bytearray:
    records = [
        Record(
            offset=index,
            timestamp=NOW_MS + round_,
            key=b"key-%d" % index,
            value=None if index == 3 else b"%d " % round_ + ESCAPE + b"\xff" * 20,
            headers=(("round", b"%d" % round_),),
        )
        for index in range(10)
    ]
    if "producer_id" in settings:
        settings |= {"producer_epoch": 0, "base_sequence": round_ * 10}
    return build_batch(records, **settings)


def _is_clean(log: PartitionLog) -> bool:
    return log.clean_offset == log.log_end_offset == 300


@pytest.fixture
def partition(stopped: Path) -> Path:
    (path,) = stopped.glob("table.*/0")
    return path


@pytest.fixture
def journal(stopped: Path) -> Path:
    (path,) = stopped.glob("journal.*/0")
    return path


def dump(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Returns the standard output of a dump that finds no fault."""
    code = run_command(["dump-log", *map(str, arguments)])
    printed = capsys.readouterr()
    assert code == 0, printed
    return printed.out


def dump_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Iterator[dict[str, Any]]:
    return map(json.loads, dump(capsys, "--json", *arguments).splitlines())


def test_every_file_that_a_broker_writes_has_a_kind(stopped: Path, partition: Path) -> None:
    files = [path for path in stopped.rglob("*") if path.is_file()]
    kinds = {path: kind_of(ReadOnlyFileSystem(), str(path)) for path in files}

    assert None not in kinds.values()
    unwritten = {
        Kind.METADATA_SNAPSHOT,
        Kind.ABORTED_TRANSACTIONS,
        Kind.UNDO_FILE,
        Kind.COORDINATOR_CHECKPOINT,
    }
    earlier = {Kind.OLD_METADATA_LOG, Kind.OLD_METADATA_SNAPSHOT}
    assert set(kinds.values()) == set(Kind) - unwritten - earlier
    assert kinds[partition / "manifest"] is Kind.MANIFEST


def test_every_file_is_printed_both_ways(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted(path for path in stopped.rglob("*") if path.is_file()):
        assert dump(capsys, path).startswith(f"{path}: ")
        first = next(dump_json(capsys, path))
        assert (first["type"], first["path"]) == ("file", str(path))


def test_a_segment_is_one_line_a_batch(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = journal.glob("*.log")

    rows = list(dump_json(capsys, segment))[1:]
    lines = dump(capsys, segment).splitlines()[3:]

    assert [row["base_offset"] for row in rows] == list(range(0, 300, 10))
    assert {row["codec"] for row in rows} == {"zstd"}
    assert all(row["crc_ok"] and row["records"] == 10 for row in rows)
    assert sum(row["bytes"] for row in rows) == segment.stat().st_size
    assert len(lines) == 30
    for row, line in zip(rows, lines, strict=True):
        for value in (row["position"], row["base_offset"], row["last_offset"], row["crc"]):
            assert str(value) in line.split()
        assert time_text(row["max_timestamp"]) in line
    assert "\x1b" not in "".join(lines), "colours are for terminals"


def dump_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> str:
    """Returns the output of `dump` on a terminal, without its colours."""
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        return re.sub(r"\x1b\[[\d;]*m", "", dump(capsys, *arguments))


@pytest.mark.parametrize("columns", [80, 140])
def test_on_a_terminal_rows_break_between_columns_and_a_batch_fits_140(
    stopped: Path,
    journal: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    (segment,) = journal.glob("*.log")
    whole = {path: dump(capsys, path) for path in [stopped, journal, *journal.iterdir()]}
    monkeypatch.setenv("COLUMNS", str(columns))

    for path, text in whole.items():
        narrow = dump_on_a_terminal(capsys, monkeypatch, path)
        assert narrow.split() == text.split()
        facts = {line for line in text.splitlines() if len(line.split("  ")) <= 2}
        rows = [line for line in narrow.splitlines() if line not in facts]
        assert max(map(len, rows), default=0) <= columns, path
    narrow = dump_on_a_terminal(capsys, monkeypatch, segment)
    assert (narrow == whole[segment]) == (columns == 140)


def test_in_a_pipe_a_row_is_one_line_whatever_columns_says(
    journal: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = {path: dump(capsys, path) for path in journal.iterdir()}
    monkeypatch.setenv("COLUMNS", "40")

    assert {path: dump(capsys, path) for path in whole} == whole


def test_a_cleaned_batch_shows_its_delete_horizon_and_its_producer(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = [path for path in partition.glob("*.log") if path.stat().st_size]

    (row,) = list(dump_json(capsys, segment))[1:]

    assert (row["base_offset"], row["last_offset"]) == (290, 299)
    assert (row["producer_id"], row["base_sequence"]) == (5, 290)
    assert row["delete_horizon_ms"] > NOW_MS
    assert "delete horizon 20" in dump(capsys, segment)
    assert "5/0/290" in dump(capsys, segment)


def test_records_are_printed_so_that_no_terminal_obeys_them(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = journal.glob("*.log")

    text = dump(capsys, "--records", "--offset", 107, "--limit", 4, segment)
    rows = [
        row
        for row in dump_json(capsys, "--records", "--offset", 107, "--limit", 4, segment)
        if row["type"] == "record"
    ]

    assert [row["offset"] for row in rows] == [107, 108, 109, 110]
    assert rows[0]["key"] == "key-7"
    assert rows[0]["value_base64"]
    assert rows[0]["headers"] == [{"key": "round", "value": "10"}]
    assert "\x1b" not in text
    assert '"key-7" = 0x3130201b' in text
    assert 'headers: round="10"' in text


def test_the_limit_counts_batches_where_no_records_are_asked_for(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = journal.glob("*.log")

    rows = list(dump_json(capsys, "--offset", 55, "--limit", 2, segment))[1:]

    assert [row["base_offset"] for row in rows] == [50, 60]


def test_a_damaged_segment_is_printed_around_the_damage(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = journal.glob("*.log")
    rows = list(dump_json(capsys, segment))[1:]
    data = bytearray(segment.read_bytes())
    data[rows[1]["position"] + 70] ^= 1
    damaged = tmp_path / segment.name
    damaged.write_bytes(data[:-5])

    found = list(dump_json(capsys, damaged))[1:]

    assert [row["type"] for row in found] == ["batch", "damage", *["batch"] * 27, "damage"]
    assert found[1]["base_offset"] == 10
    assert not found[1]["crc_ok"]
    assert "carries CRC" in found[1]["reason"]
    assert f"damaged at byte {rows[1]['position']}: " in dump(capsys, damaged)


def test_indexes_are_printed_with_absolute_offsets(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = journal.glob("*.log")
    batches = {row["position"]: row for row in list(dump_json(capsys, segment))[1:]}

    entries = list(dump_json(capsys, segment.with_suffix(".index")))[1:]
    times = list(dump_json(capsys, segment.with_suffix(".timeindex")))[1:]

    assert entries
    for entry in entries:
        assert batches[entry["position"]]["last_offset"] == entry["last_offset"]
    by_last_offset = {row["last_offset"]: row for row in batches.values()}
    assert times
    for entry in times:
        assert by_last_offset[entry["last_offset"]]["max_timestamp"] == entry["timestamp"]


def test_manifest_snapshot_and_epochs_say_what_the_log_is(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, *rows = dump_json(capsys, partition / "manifest")
    assert (manifest["partition"], manifest["clean_offset"]) == (0, 300)
    assert [(row["base_offset"], row["end_offset"]) for row in rows] == [(0, 300), (300, 300)]
    assert rows[0]["record_count"] == 10

    (_, producer) = dump_json(capsys, partition / f"{300:020d}.snapshot")
    assert producer["producer_id"] == 5
    assert producer["batches"][-1] == {
        "first_sequence": 290,
        "last_sequence": 299,
        "last_offset": 299,
    }

    (_, epoch) = dump_json(capsys, partition / "leader-epoch-checkpoint")
    assert (epoch["epoch"], epoch["start_offset"]) == (0, 0)


def test_the_metadata_log_and_its_snapshot_are_printed(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log,) = (stopped / "metadata").glob("*.replog")
    rows = list(dump_json(capsys, log))
    assert rows[0]["base_index"] == 1
    assert rows[1]["operations"][0][:2] == ["put", "/topics/table"]

    store = MetadataLog(LocalFileSystem(), str(tmp_path / "metadata"), CompactionSettings())
    store.recover()
    operations: list[Operation] = [["put", "/key", "value", 0], ["grant", 1, 60_000]]
    entry = store.append(operations)
    store.machine.run(operations)
    store.applied(entry)
    store.begin_snapshot()
    store.write_snapshot()
    store.finish_snapshot()
    store.close()
    (snapshot,) = (tmp_path / "metadata").glob("*.checkpoint")
    facts, row = dump_json(capsys, snapshot)
    assert (facts["revision"], facts["leases"]) == (1, [[1, 60_000]])
    assert (row["key"], row["value"], row["modified_revision"]) == ("/key", "value", 1)


SECRETS = {
    "/links/dr": '{"bootstrap":"a:9092","properties":{"ssl.key.password":"s3cret"}}',
    "/broker_configs/default": '{"ssl.key.password":"s3cret","log.retention.ms":"1"}',
    "/scram/SCRAM-SHA-256/alice": '{"salt":"s3cret"}',
    "/scram_decoys": "s3cret",
}


def test_no_password_of_the_metadata_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = LocalFileSystem()
    store = MetadataLog(files, str(tmp_path / "metadata"), CompactionSettings())
    store.recover()
    operations: list[Operation] = [["put", key, value, 0] for key, value in SECRETS.items()]
    entry = store.append(operations)
    store.machine.run(operations)
    store.applied(entry)
    (log,) = (tmp_path / "metadata").glob("*.replog")
    log = log.rename(tmp_path / log.name)
    store.begin_snapshot()
    store.write_snapshot()
    store.finish_snapshot()
    store.close()
    (snapshot,) = (tmp_path / "metadata").glob("*.checkpoint")
    state = State(revision=1, entries=[[key, value, 1, 1, 0] for key, value in SECRETS.items()])
    old_snapshot = write_old_snapshot(files, str(tmp_path), state)
    old_log = write_old_log(files, str(tmp_path), 2, [operations])

    for path in (log, snapshot, Path(old_snapshot), Path(old_log)):
        printed = dump(capsys, "--json", path)
        assert {each for each in SECRETS if each in printed} == set(SECRETS), path
        assert "ssl.key.password" in printed
        assert "log.retention.ms" in printed
        assert "s3cret" not in printed
        assert "s3cret" not in dump(capsys, path)


def test_the_metadata_files_of_an_earlier_release_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = LocalFileSystem()
    state = State(revision=1, entries=[["/key", "value", 1, 1, 0]])
    snapshot = write_old_snapshot(files, str(tmp_path), state)
    log = write_old_log(files, str(tmp_path), 2, [[["delete", "/key"]]])

    facts, row = dump_json(capsys, Path(snapshot))
    assert (facts["revision"], row["key"]) == (1, "/key")
    facts, row = dump_json(capsys, Path(log))
    assert (facts["format"], row["operations"]) == (1, [["delete", "/key"]])


def test_the_hash_key_is_never_shown(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = (stopped / "hash.key").read_bytes()

    printed = dump(capsys, stopped / "hash.key") + dump(capsys, "--json", stopped / "hash.key")

    assert "never" in printed
    assert secret.hex() not in printed
    assert repr(secret)[2:-1] not in printed


def test_a_ledger_is_printed_and_its_key_never(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.ledger"
    line, _ = encode_entry(NO_HEAD, 1_700_000_000_000, "pass", {"pass": "p", "topic": "orders"})
    path.write_bytes(line + b"torn")
    SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))

    _, entry, torn = dump_json(capsys, path)
    assert "not an entry" in dump(capsys, path)
    shown = dump(capsys, tmp_path / "signing.key")

    assert (entry["number"], entry["kind"], entry["topic"]) == (0, "pass", "orders")
    assert (torn["kind"], torn["bytes"]) == ("not an entry", 4)
    assert "never" in shown
    assert "PRIVATE" not in shown


def test_a_data_directory_lists_its_logs_and_a_partition_its_files(
    stopped: Path, partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, *logs = dump_json(capsys, stopped)
    assert (facts["logs"], facts["clean_shutdown_marker"]) == (2, True)
    assert [log["topic"] for log in logs] == ["journal", "table"]
    assert logs[1]["recovery_point"] == 300
    sidecars = stopped.glob("table.*/0/*.keys")
    assert logs[1]["key_sidecar_bytes"] == sum(path.stat().st_size for path in sidecars)

    names = {row.get("name") for row in dump_json(capsys, partition)}
    assert {"manifest", "leader-epoch-checkpoint"} <= names
    assert "clean offset: 300" in dump(capsys, partition)


def test_a_sound_directory_has_nothing_to_say_but_its_numbers(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings_in(ReadOnlyFileSystem(), str(stopped)) == []

    *logs, summary = dump_json(capsys, "--verify", "--keys", stopped)
    assert {log["type"] for log in logs} == {"log"}
    assert (summary["logs"], summary["records"]) == (2, 310)
    assert (summary["errors"], summary["warnings"], summary["notes"]) == (0, 0, 0)
    assert len(dump(capsys, "--verify", stopped).splitlines()) == 2


def test_damage_is_printed_and_ends_with_1(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", stopped, copy], check=True)
    (segment,) = copy.glob("journal.*/0/*.log")
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.write_bytes(data)

    code = run_command(["dump-log", "--verify", str(copy)])

    printed = capsys.readouterr().out
    assert code == 1
    assert f"error: {segment} at byte 0: batch at position 0" in printed

    code = run_command(["dump-log", "--verify", "--json", str(copy)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (finding,) = [row for row in rows if row["type"] == "finding"]
    assert code == 1
    assert (finding["severity"], finding["check"]) == ("error", "batch")
    assert (finding["path"], finding["position"]) == (str(segment), 0)
    assert rows[-1]["errors"] == 1


def test_notes_alone_end_with_0(stopped: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", stopped, copy], check=True)
    (copy / "lost+found").mkdir()

    assert run_command(["dump-log", "--verify", str(copy)]) == 0


def test_a_key_sidecar_that_is_damaged_is_a_note_and_one_that_lies_an_error(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", stopped, copy], check=True)
    (path,) = copy.glob("table.*/0/*.keys")
    sound = path.read_bytes()

    path.write_bytes(sound[:-1])
    (found,) = _sidecar_findings(capsys, copy, code=0)
    assert (found["severity"], found["path"]) == ("note", str(path))

    lie = bytearray(sound)
    rows = sum(struct.unpack_from(">4xII", lie, 48))
    end = 48 + 16 + 24 * rows
    lie[end - 1] ^= 1  # the size of the first block's last record
    path.write_bytes(bytes(lie[:48]) + sealed(bytes(lie[48:end])) + bytes(lie[end + 8 :]))
    (found,) = _sidecar_findings(capsys, copy, code=1)
    assert (found["severity"], found["path"]) == ("error", str(path))

    path.write_bytes(sound)
    assert _sidecar_findings(capsys, copy, code=0) == []


def _sidecar_findings(
    capsys: pytest.CaptureFixture[str], path: Path, *, code: int
) -> list[dict[str, Any]]:
    assert run_command(["dump-log", "--verify", "--json", str(path)]) == code
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    return [row for row in rows if row.get("check") == "key sidecar"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["/does/not/exist"],
        ["--verify", __file__],
        ["--verify", str(ROOT)],
        [__file__],
        ["--keys", str(ROOT)],
        ["--verify", "--records", str(ROOT)],
        ["--limit", "0", __file__],
    ],
)
def test_wrong_use_is_told_and_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["dump-log", *arguments]) == 2

    assert capsys.readouterr().err


@pytest.mark.parametrize("name", ["manifest", f"{300:020d}.snapshot", "leader-epoch-checkpoint"])
def test_a_damaged_file_is_one_line_and_ends_with_1(
    name: str, partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / name
    data = bytearray((partition / name).read_bytes())
    data[-1] ^= 0x40
    damaged.write_bytes(data)

    assert run_command(["dump-log", str(damaged)]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert f"{damaged} is damaged" in line


def test_a_terminal_sees_how_far_a_verification_is(
    stopped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    assert run_command(["dump-log", "--verify", "--json", str(stopped)]) == 0

    printed = capsys.readouterr()
    size = sum(path.stat().st_size for path in stopped.rglob("*.v*.log"))
    assert f"{size / 1000:.1f}/{size / 1000:.1f} kB" in printed.err
    assert all(json.loads(line) for line in printed.out.splitlines())


def test_nothing_is_opened_for_writing(stopped: Path) -> None:
    for path in [path for path in stopped.rglob("*") if path.is_file()]:
        path.chmod(0o400)
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    (segment,) = stopped.glob("journal.*/0/*.log")
    file = ReadOnlyFileSystem().open(str(segment))
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(file.fileno(), b"x", 0)
    finally:
        file.close()

    assert run_command(["dump-log", "--verify", "--keys", str(stopped)]) == 0
    assert {path: path.stat().st_mtime_ns for path in stopped.rglob("*")} == before


async def test_the_directory_of_a_running_broker_can_be_verified(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "data", **CLEANING) as served:
        await served.create(
            "table", cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0"
        )
        ends_at = time.monotonic() + 1
        round_ = 0
        while time.monotonic() < ends_at:
            await served.produce("table", _batch(round_))
            round_ += 1
            found = await asyncio.to_thread(
                findings_in, ReadOnlyFileSystem(), str(tmp_path / "data")
            )
            assert {each.severity.value for each in found} <= {"note"}, found


def test_serving_does_not_load_what_prints() -> None:
    code = "import sys, cli.serve, server.run; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    loaded = set(done.stdout.split())
    assert "storage.recovery.recovery" in loaded
    assert not loaded & {"rich", "typer", "cli.dump.command", "storage.verify.log"}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "(null)"),
        (b"", '""'),
        ("grün".encode(), '"grün"'),
        (b'a"b', '"a\\"b"'),
        (b"\x1b[31m", "0x1b5b33316d"),
        (b"\xff", "0xff"),
        (b"a" * 300, f'"{"a" * 200}" ... (300 bytes)'),
    ],
)
def test_bytes_are_printed_safely(data: bytes | None, text: str) -> None:
    assert bytes_text(data) == text


def test_a_header_s_name_is_printed_safely() -> None:
    assert name_text("round") == "round"
    assert name_text("\x1b[31m") == '"\\u001b[31m"'
    assert name_text("\udcff") == '"\\udcff"'


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (-1, "-"),
        (1_700_000_000_123, "2023-11-14 22:13:20.123Z"),
        (-(1 << 62), str(-(1 << 62))),
        (1 << 62, str(1 << 62)),
    ],
)
def test_any_timestamp_is_printed(timestamp: int, text: str) -> None:
    assert time_text(timestamp) == text


def test_passes_of_every_kind_are_one_line_each_and_a_torn_one_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: dict[str, Any] = {"ended_ms": NOW_MS, "topic": "t", "partition": 0, "seconds": 0.5}
    passes: list[dict[str, Any]] = [
        {**begun, "result": "completed", "reason": "DIRTY", "groups": 2},
        {**begun, "result": "failed", "error": "batch at 61 is damaged", "failures": 3},
    ]
    path = tmp_path / "compaction-history"
    path.write_bytes(
        b"".join([encode_line(each) for each in [dict[str, Any](HEADER), *passes]]) + b"01234567 {"
    )

    first, *rows = dump_json(capsys, path)
    lines = dump(capsys, path).splitlines()

    assert first["damage"] == "1 damaged line"
    assert [row["result"] for row in rows] == ["completed", "failed"]
    assert [row["rest"] for row in rows] == [{"groups": 2}, {"failures": 3}]
    assert "batch at 61 is damaged" in lines[-1]
