"""What may be typed, and how a wrong line ends; nothing here starts Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

import pipeline.tables.command
import pipeline.tables.job
from pipeline.cli import app
from pipeline.offsets.cut import Cut
from pipeline.tables.formats.versioned_folder import VersionedFolder
from pipeline.tables.options import schema_text

if TYPE_CHECKING:
    from pipeline.tables.formats.table import TableSize

CUT = Cut({"orders": {0: 7, 1: 0}}, {"orders": "id-1"})


@pytest.fixture
def table(tmp_path: Path) -> str:
    VersionedFolder(tmp_path / "t").publish(
        lambda folder: folder.mkdir(parents=True), CUT.to_json()
    )
    return str(tmp_path / "t")


def test_offsets_of_a_parquet_table_are_said_without_spark(table: str) -> None:
    said = CliRunner().invoke(app, ["table", "offsets", "--table", table])
    assert [line.split() for line in said.output.splitlines()][1:] == [
        ["orders", "0", "7"],
        ["orders", "1", "0"],
    ]


def test_offsets_are_json_for_programs(table: str) -> None:
    said = CliRunner().invoke(app, ["table", "offsets", "--table", table, "--json"])
    assert json.loads(said.output) == {"orders": {"id": "id-1", "offsets": {"0": 7, "1": 0}}}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--option", "startingOffsets=latest"], "a table knows itself which records it needs"),
        (["--option", "nothing"], "write NAME=VALUE"),
        (["--value-format", "avro"], "values in Avro need --value-schema"),
        (["--renamed", "a=b"], "--renamed goes with values in Avro"),
        (["--on-truncate", "apply"], "--on-truncate apply goes with --envelope debezium"),
        (["--confluent-header"], "--confluent-header needs --schema-registry URL"),
        (["--schema-id", "7"], "--schema-id goes with values in Avro"),
        (["--key-schema-id", "7"], "--key-schema-id goes with keys in Avro"),
        (["--envelope", "debezium"], "--envelope debezium goes with values in Avro or JSON"),
        (["--envelope", "maxwell"], "--envelope maxwell goes with values in JSON"),
        (
            ["--envelope", "maxwell", "--value-format", "json"],
            "--envelope maxwell and --source-table DATABASE.TABLE go together",
        ),
        (
            ["--source-table", "a.b"],
            "--envelope maxwell and --source-table DATABASE.TABLE go together",
        ),
        (["--source-table", "a"], "--source-table must be DATABASE.TABLE, not a"),
        (
            ["--dead-letters", "x"],
            "--on-unparsable dead-letter and --dead-letters PATH go together",
        ),
        (["--on-unparsable", "dead-letter"], "--dead-letters PATH go together"),
        (["--key-format", "json"], "keys in json need --key-schema"),
        (["--value-format", "protobuf"], "values in protobuf need --schema-registry"),
        (["--value-format", "json-schema"], "values in json-schema need --schema-registry"),
        (
            ["--schema-registry", "http://x"],
            "--schema-registry goes with avro, json-schema, protobuf",
        ),
        (["--value-schema", "subject:x"], "subject:x needs --schema-registry, and the format"),
        (["--schema-registry", "ftp://x"], "ftp://x is not of the form http://host:port"),
        (["--schema-registry-config", "/x"], "--schema-registry-config goes with"),
        (["--format", "iceberg"], "a table in Iceberg is named CATALOG.NAMESPACE.TABLE"),
        (["--catalog-property", "type=rest"], "--catalog-property needs --format iceberg"),
    ],
)
def test_a_line_that_makes_no_sense_ends_with_its_sentence(
    arguments: list[str], sentence: str
) -> None:
    line = ["table", "batch", "--topic", "orders", "--table", "/nowhere", *arguments]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code != 0
    assert sentence in ended.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--retain-hours", "168"], "--retain-hours goes with --small-files-max"),
        (
            ["--small-files-max", "9", "--format", "parquet"],
            "--small-files-max needs --format delta or iceberg",
        ),
        (["--small-files-max", "9", "--retain-hours", "24"], "Delta keeps files for 168 hours"),
    ],
)
def test_upkeep_that_a_table_does_not_need_is_refused(arguments: list[str], sentence: str) -> None:
    line = ["table", "stream", "--topic", "orders", "--table", "/nowhere", *arguments]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code != 0
    assert sentence in ended.output


def test_a_schema_is_typed_or_lies_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text('"long"')
    assert schema_text(str(tmp_path / "order.avsc")) == '"long"'
    assert schema_text("id BIGINT") == "id BIGINT"
    assert schema_text("x STRING, " * 1_000) == "x STRING, " * 1_000
    assert schema_text(None) is None


class WrittenTable:
    """What a job has written."""

    def read(self) -> WrittenTable:
        return self

    def count(self) -> int:
        return 2

    def size(self) -> TableSize:
        from pipeline.tables.formats.table import TableSize

        return TableSize(3, 4_000)


@pytest.mark.parametrize(("command", "job"), [("batch", "write_whole"), ("stream", "follow")])
def test_the_result_is_printed_once_the_progress_is_gone(
    command: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    events: list[str] = []

    @contextmanager
    def session_of(_: object) -> Iterator[None]:
        yield
        events.append("the progress is gone")

    monkeypatch.setattr(pipeline.tables.command, "session_of", session_of)
    monkeypatch.setattr(pipeline.tables.command.Order, "table", lambda *_: WrittenTable())
    run = pipeline.tables.job.Run(cut=CUT, records=5, micro_batches=1)
    monkeypatch.setattr(pipeline.tables.job, job, lambda *_: run)
    monkeypatch.setattr(pipeline.tables.job, "offsets_behind", lambda *_: 0)
    monkeypatch.setattr(typer, "echo", lambda line: events.append(line))

    line = ["table", command, "--topic", "orders", "--table", "place"]
    result: Any = CliRunner().invoke(app, line)

    assert result.exit_code == 0, result
    assert events[:2] == ["the progress is gone", "2 keys in place"]
    assert re.fullmatch(
        r"5 records read in .* \(.* records/s, 1 micro-batch\); 3 files of 4.0 kB; 0 offsets behind",
        events[2],
    )
