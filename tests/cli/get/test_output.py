"""The output of `kompakt get` for the broker's answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.base.command_end import CommandFailed
from cli.get.output import Printing, print_answers

Json = dict[str, Any]

DELETED: Json = {"key": "bob", "error": "bob is deleted at offset 7", "code": "deleted"}


def found(key: str, value: str, *, encoding: str = "utf-8", partition: int = 0) -> Json:
    """Returns the answer about a key that has a value."""
    return {
        "topic": "users",
        "partition": partition,
        "offset": 42,
        "timestamp_ms": 1_767_225_600_000,
        "key": key,
        "key_encoding": "utf-8",
        "value": value,
        "value_encoding": encoding,
        "headers": [{"key": "h", "value": "x", "encoding": "utf-8"}],
    }


def ambiguous(key: str) -> Json:
    """Returns the answer about a key that has a value in the partitions 3 and 0."""
    records = [found(key, "new", partition=3), found(key, "old", partition=0)]
    return {"topic": "users", "key": key, "ambiguous": True, "records": records}


def printed(
    capsys: pytest.CaptureFixture[bytes], answers: dict[bytes, Json], **printing: Any
) -> tuple[int, bytes, str]:
    """Returns the exit code, the output, and what is said beside it."""
    code = print_answers("users", list(answers), list(answers.values()), Printing(**printing))
    shown = capsys.readouterr()
    return code, shown.out, shown.err.decode()


@pytest.fixture
def capsys(capsysbinary: pytest.CaptureFixture[bytes]) -> pytest.CaptureFixture[bytes]:
    return capsysbinary


def test_one_value_is_a_line_with_its_bytes(capsys: pytest.CaptureFixture[bytes]) -> None:
    assert printed(capsys, {b"ada": found("ada", "Zürich")}) == (0, "Zürich\n".encode(), "")
    of_bytes = {b"ada": found("ada", "AP8=", encoding="base64")}
    assert printed(capsys, of_bytes) == (0, b"\x00\xff\n", "")


def test_a_raw_value_has_no_newline(capsys: pytest.CaptureFixture[bytes]) -> None:
    of_bytes = {b"ada": found("ada", "AP8=", encoding="base64")}

    assert printed(capsys, of_bytes, is_raw=True) == (0, b"\x00\xff", "")
    assert printed(capsys, {b"ada": found("ada", "x")}, is_raw=True) == (0, b"x", "")
    with pytest.raises(CommandFailed, match="partitions 0, 3 have a value; --partition N"):
        printed(capsys, {b"ada": ambiguous("ada")}, is_raw=True)


def test_several_values_are_a_table_and_a_key_without_one_is_named(
    capsys: pytest.CaptureFixture[bytes],
) -> None:
    answers = {b"ada": found("ada", "Rome"), b"bob": DELETED, b"carol": found("carol", "Oslo")}

    code, table, said = printed(capsys, answers)

    assert table.decode().splitlines() == [
        "part:offset   time (UTC)           key    value",
        "0:42          2026-01-01 00:00:00  ada    Rome",
        "0:42          2026-01-01 00:00:00  carol  Oslo",
    ]
    assert (code, said) == (1, "kompakt: bob: bob is deleted at offset 7\n")


def test_a_separator_and_details_choose_lines(capsys: pytest.CaptureFixture[bytes]) -> None:
    answers = {b"ada": found("ada", "Rome"), b"carol": found("carol", "Oslo")}

    assert printed(capsys, answers, separator="\\t")[1] == b"ada\tRome\ncarol\tOslo\n"
    one = printed(capsys, {b"ada": found("ada", "Rome")}, is_detailed=True)[1]
    assert one == b'0:42  2026-01-01 00:00:00.000Z  "ada" = "Rome"  [h="x"]\n'


def test_without_any_value_only_the_reasons_are_printed(
    capsys: pytest.CaptureFixture[bytes],
) -> None:
    missing = {"key": "carol", "error": "carol is not in the log", "code": "not_found"}

    assert printed(capsys, {b"bob": DELETED}) == (1, b"", "kompakt: bob is deleted at offset 7\n")
    code, table, said = printed(capsys, {b"bob": DELETED, b"carol": missing})
    assert (code, table, said.count("\n")) == (1, b"", 2)


def test_all_values_of_an_ambiguous_key_are_printed_with_their_partitions(
    capsys: pytest.CaptureFixture[bytes],
) -> None:
    code, table, said = printed(capsys, {b"ada": ambiguous("ada")})

    assert [line.split()[0] for line in table.decode().splitlines()[1:]] == ["3:42", "0:42"]
    assert (code, said) == (
        0,
        "kompakt: users: ada is ambiguous: partitions 0, 3 have a value;"
        " --partition N chooses one\n",
    )


def test_json_is_the_answer_of_the_broker(capsys: pytest.CaptureFixture[bytes]) -> None:
    answers = {b"ada": found("ada", "Rome"), b"bob": DELETED}

    code, text, _ = printed(capsys, {b"ada": answers[b"ada"]}, is_json=True)
    assert (code, json.loads(text)) == (0, answers[b"ada"])
    code, text, said = printed(capsys, answers, is_json=True)
    assert (code, json.loads(text)) == (1, {"topic": "users", "records": list(answers.values())})
    assert "bob is deleted" in said


@pytest.mark.parametrize(
    ("printing", "keys", "sentence"),
    [
        (Printing(is_json=True, is_detailed=True), 1, "cannot be combined"),
        (Printing(separator="=", is_raw=True), 1, "cannot be combined"),
        (Printing(is_raw=True), 2, "--raw takes one key"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    printing: Printing, keys: int, sentence: str
) -> None:
    with pytest.raises(CommandFailed, match=sentence) as refused:
        printing.check(keys)
    assert refused.value.exit_code == 2
