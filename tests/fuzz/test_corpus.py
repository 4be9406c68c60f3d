"""What the fuzzer has found, replayed: the inputs that reach new code, and those that once failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_every_input_of_its_corpus(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs

    for each in inputs:
        try:
            TARGETS[name](each.read_bytes())
        except Exception as error:
            raise AssertionError(f"{name} fails with {each.name}") from error


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff" * 99, b"[" * 100_000, b"{" * 9, b"," * 9, b"=" * 9]
)
def test_a_target_takes_what_no_client_writes(name: str, data: bytes) -> None:
    TARGETS[name](data)


def test_every_corpus_has_its_target() -> None:
    assert {each.name for each in CORPUS.iterdir()} == set(TARGETS)
