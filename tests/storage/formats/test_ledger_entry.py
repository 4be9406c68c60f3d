"""The entries of a ledger: any change of any byte of the chain is noticed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.formats.ledger_chain import Chain, state_of_file
from storage.formats.ledger_entry import (
    NO_HASH,
    NO_HEAD,
    Entry,
    decode_entry,
    encode_entry,
    file_name,
    lines_of,
    parse_file_name,
)

MEMBERS = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in {"n", "previous", "at_ms", "kind"}),
    st.none() | st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=3),
    max_size=4,
)


def chain_of(each: list[dict[str, object]]) -> list[bytes]:
    lines, head = [], NO_HEAD
    for number, members in enumerate(each):
        line, head = encode_entry(head, 1000 + number, "group", members)
        lines.append(line)
    return lines


def problems_in(data: bytes) -> list[str]:
    chain = Chain()
    return [problem for line in lines_of(data) if (problem := chain.take(line)) is not None]


def entries_in(data: bytes) -> list[Entry]:
    return [line.entry for line in lines_of(data) if line.entry is not None]


def test_an_entry_names_its_number_and_the_hash_of_the_one_before() -> None:
    first, second = entries_in(b"".join(chain_of([{"a": 1}, {"b": "\u00e9"}])))

    assert (first.number, first.previous, first.at_ms, first.kind) == (0, NO_HASH, 1000, "group")
    assert (second.number, second.previous) == (1, first.hash)
    assert second.members["b"] == "\u00e9"
    assert second.follows(first.head)
    assert not first.follows(second.head)


def test_a_line_that_is_no_entry_is_none() -> None:
    line = chain_of([{}])[0][:-1]

    assert decode_entry(line) is not None
    for other in (b"", b"x", line[1:], line[:-1], line + b" ", line.replace(b"group", b"grouq")):
        assert decode_entry(other) is None


def test_names_of_files() -> None:
    assert file_name(7) == "00000000000000000007.ledger"
    assert parse_file_name(file_name(7)) == 7
    assert parse_file_name("cut.7") is None


@given(st.lists(MEMBERS, min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_chain_is_read_as_it_was_written(each: list[dict[str, object]]) -> None:
    data = b"".join(chain_of(each))

    assert problems_in(data) == []
    assert [{name: entry.members[name] for name in members} for entry, members in
            zip(entries_in(data), each, strict=True)] == each  # fmt: skip
    state = state_of_file(data)
    assert (state.sound_end, state.problem, len(state.entries)) == (len(data), None, len(each))


@given(st.lists(MEMBERS, min_size=1, max_size=5), st.data())
@settings(max_examples=150, deadline=None)
def test_a_change_of_any_byte_is_noticed(
    each: list[dict[str, object]], data: st.DataObject
) -> None:
    whole = b"".join(chain_of(each))
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))

    damaged = whole[:at] + bytes([other]) + whole[at + 1 :]

    assert problems_in(damaged)


@given(st.lists(MEMBERS, min_size=3, max_size=6), st.data())
@settings(max_examples=50, deadline=None)
def test_an_entry_that_is_left_out_repeated_or_exchanged_is_noticed(
    each: list[dict[str, object]], data: st.DataObject
) -> None:
    lines = chain_of(each)
    at = data.draw(st.integers(0, len(lines) - 2))
    others = chain_of([{"other": True}, *each[1:]])

    assert problems_in(b"".join(lines[:at] + lines[at + 1 :]))
    assert problems_in(b"".join([*lines[: at + 1], *lines[at:]]))
    assert problems_in(b"".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]))
    assert problems_in(b"".join(others[: at + 1] + lines[at + 1 :]))


def test_damage_names_the_entry_and_what_follows_is_read_on() -> None:
    lines = chain_of([{"x": number} for number in range(4)])
    lines[1] = lines[1].replace(b'"x":1', b'"x":2')

    assert len(problems_in(b"".join(lines))) == 1
    assert problems_in(b"".join(lines))[0].startswith("entry 1 is damaged")


def test_a_torn_end_is_not_part_of_the_sound_file() -> None:
    lines = chain_of([{"x": number} for number in range(3)])
    sound = b"".join(lines[:2])

    for torn in (b"", lines[2][:40], lines[2][:-1], bytes(len(lines[2])), b"\n" + lines[2][:-1]):
        state = state_of_file(sound + torn)
        assert (state.sound_end, state.problem) == (len(sound), None)
        assert [entry.number for entry in state.entries] == [0, 1]
