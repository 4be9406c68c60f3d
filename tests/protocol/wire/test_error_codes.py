"""Error codes: the numbers, names and retriability that clients act on."""

from __future__ import annotations

import kio.schema.errors

from protocol.wire.error_codes import ErrorCode


def test_every_code_has_kafkas_number_name_and_retriability() -> None:
    theirs = {
        (int(code), code.name.upper(), code.retriable) for code in kio.schema.errors.ErrorCode
    }
    assert {(int(code), code.name, code.retriable) for code in ErrorCode} == theirs


def test_every_code_has_a_sentence_for_people() -> None:
    for code in ErrorCode:
        assert code.message.endswith("."), code
        assert ErrorCode(code.value) is code


def test_a_code_from_a_later_release_is_an_unknown_error() -> None:
    assert ErrorCode.from_wire(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.from_wire(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR
