"""`kompakt export`: what may be typed, how it ends, and what it prints."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pipeline.export.command
from cli.commands import app
from storage.files.paths import topic_directory
from storage.formats.compaction_strategy import CompactionStrategy, Ranking
from tests.harness.broker_process import BrokerProcess
from tests.harness.compacted_log import CompactedLog
from tests.harness.exported_log import on_disk, rows_in


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a topic with two keys, one of them deleted."""
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"2"), (b"b", None))
    return Path(on_disk(log, tmp_path).directory).parent


def run(data: Path, *arguments: object) -> Any:
    words = ["export", "orders", "--data-dir", data, "--threads", 1, *arguments]
    return CliRunner().invoke(app, list(map(str, words)))


def test_it_says_how_many_keys_are_where(data: Path, tmp_path: Path) -> None:
    said = run(data, "--to", tmp_path / "parquet")

    assert said.exit_code == 0
    assert said.output.startswith(f"1 key in {tmp_path}/parquet/current: 1 file written (")
    assert rows_in("parquet", tmp_path) == {(0, b"a"): (0, b"1")}


def test_a_program_gets_json(data: Path, tmp_path: Path) -> None:
    answer = json.loads(run(data, "--to", tmp_path / "t", "--json").output)

    assert answer.pop("seconds") >= 0
    assert answer.pop("bytes_written") > 0
    assert answer.pop("topics")["orders"]["offsets"] == {"0": 3}
    assert answer == {
        "table": f"{tmp_path}/t/current",
        "keys": 1,
        "files_written": 1,
        "files_kept": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--value-format", "json"], "values in json need --value-schema"),
        (["--value-format", "avro"], "values in Avro need --value-schema"),
        (["--on-unparsable", "dead-letter"], "an export has no dead letters"),
        (["--strategy", "newest"], "'newest' is none of offset, timestamp and 'header NAME'"),
        (["--format", "iceberg"], "a table in Iceberg is named NAMESPACE.TABLE"),
        (["--key-column", "value"], "two columns would be named value"),
        (["--value-schema", "x INT"], "--value-schema does not go with values in bytes"),
    ],
)
def test_a_wrong_line_ends_with_a_sentence(
    data: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    said = run(data, "--to", "t" if "iceberg" in arguments else tmp_path / "t", *arguments)

    assert said.exit_code in (1, 2)
    assert sentence in said.output
    assert not (tmp_path / "t").exists()


def test_a_catalog_that_is_not_there_is_named(data: Path) -> None:
    said = run(data, "--format", "iceberg", "--to", "a.b", "--catalog-property", "uri=nothing://")

    assert said.exit_code == 1
    assert "the catalog default cannot be used" in said.output


def test_a_topic_that_is_not_there_is_named(data: Path, tmp_path: Path) -> None:
    words = ["export", "other", "--data-dir", str(data), "--to", str(tmp_path / "t")]
    said = CliRunner().invoke(app, words)

    assert said.exit_code == 1
    assert f"{data} has no topic other" in said.output


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    said = run(tmp_path, "--to", tmp_path / "t")

    assert said.exit_code == 1
    assert f"{tmp_path} is no data directory, and no folder of a topic" in said.output


def test_the_topic_is_not_read_from_some_of_its_directories(data: Path, tmp_path: Path) -> None:
    topic = data.rename(data.with_name(topic_directory("orders", uuid.UUID(int=1))))
    (topic / "0").rename(topic / "1")
    said = run(topic, "--to", tmp_path / "t")

    assert said.exit_code == 1
    assert (
        "partition 0 of orders is not here: name all data directories of the broker" in said.output
    )


def test_a_missing_library_is_named_with_its_extra(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.export.command, "find_spec", lambda name: None)
    said = run(data, "--to", tmp_path / "t")

    assert said.exit_code == 1
    assert "an export needs pyarrow, deltalake: install it with" in said.output
    assert "kompakt[export]" in said.output


def test_a_topic_is_ranked_as_its_settings_say(tmp_path: Path) -> None:
    """They are in the metadata of the data directory, also before any pass has made a sidecar."""
    from pipeline.export.run import found_topic
    from tests.harness.clients import create_topic

    with BrokerProcess(tmp_path / "broker") as broker:
        create_topic(
            broker.bootstrap_servers,
            "orders",
            partitions=1,
            config={"cleanup.policy": "compact", "compaction.strategy": "timestamp"},
        )
        create_topic(broker.bootstrap_servers, "plain", partitions=1, config={})
        found = [found_topic([broker.data_dir], topic, None) for topic in ("orders", "plain")]

    assert found[0].strategy == CompactionStrategy(Ranking.TIMESTAMP)
    assert found[1].strategy == CompactionStrategy()


def test_the_columns_of_json_come_from_the_table_if_nobody_names_them(
    data: Path, tmp_path: Path
) -> None:
    log = CompactedLog()
    log.append((b"a", b'{"n": 7}'))
    topic = Path(on_disk(log, tmp_path / "json").directory).parent
    first = run(topic, "--to", tmp_path / "delta", "--format", "delta", "--value-format", "json",
                "--value-schema", "n BIGINT")  # fmt: skip
    again = run(topic, "--to", tmp_path / "delta", "--format", "delta", "--value-format", "json")

    assert (first.exit_code, again.exit_code) == (0, 0), again.output
    assert "0 files written (0 B), 1 kept" in again.output
    assert rows_in("delta", tmp_path, value="n") == {(0, b"a"): (0, 7)}


def test_an_export_does_not_load_spark() -> None:
    """`kompakt export` must work without the extra `spark`."""
    code = "import sys, pipeline.export.run; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_partition_of_many_segments_is_held_whatever_the_soft_limit_of_open_files_is(
    tmp_path: Path,
) -> None:
    log = CompactedLog()
    for number in range(100):
        log.append_segment((b"k%d" % number, b"v"))
    topic = Path(on_disk(log, tmp_path).directory).parent
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    words = ["export", "orders", "--data-dir", topic, "--to", tmp_path / "parquet"]
    done = subprocess.run(
        [sys.executable, "-m", "cli", *map(str, words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert len(rows_in("parquet", tmp_path)) == 100
