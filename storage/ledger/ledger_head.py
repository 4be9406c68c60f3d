"""The signed head of a ledger: an anchor to be kept elsewhere.

A chain proves only that its entries belong together: a person who can write to the disk can write
another chain. A head that is kept elsewhere shows that: the chain must still have its entry and hash.

    statement := "kompakt ledger head 1\\n" directory id "\\n" number "\\n" hash "\\n" at_ms "\\n"
    anchor    := JSON object: format, cluster, directory, number, hash, at_ms, public_key, signature
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from storage.files.files import FileSystem
from storage.files.signing_key import SigningKey, verify
from storage.formats.ledger_entry import BEGIN, Entry
from storage.ledger.ledger_files import ledger_numbers, read_entries

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHead:
    """The last entry of a ledger at some moment, and the signature of its directory."""

    cluster: str
    directory: str
    """The id of the log directory."""
    number: int
    hash: str
    at_ms: int
    public_key: str
    signature: str = ""

    @property
    def statement(self) -> bytes:
        """What is signed."""
        lines = ("kompakt ledger head 1", self.directory, self.number, self.hash, self.at_ms)
        return "".join(f"{line}\n" for line in lines).encode()

    @property
    def is_signed(self) -> bool:
        """Whether the owner of `public_key` has signed it."""
        try:
            public_key, signature = bytes.fromhex(self.public_key), bytes.fromhex(self.signature)
        except ValueError:
            return False
        return verify(public_key, self.statement, signature)

    def as_json(self) -> dict[str, Any]:
        """Returns the anchor."""
        return {"format": FORMAT, **asdict(self)}


def heads_from_json(text: str | bytes) -> list[SignedHead]:
    """Returns the heads in what `kompakt compact ledger head --json` prints, or in one anchor.

    Raises:
        ValueError: it is something else, or a later release wrote it.
    """
    given = json.loads(text)
    if isinstance(given, dict) and isinstance(given.get("heads"), list):
        return [_head_from(anchor) for anchor in given["heads"]]
    return [_head_from(given)]


def _head_from(anchor: object) -> SignedHead:
    if not isinstance(anchor, dict) or anchor.get("format") != FORMAT:
        raise ValueError(f"it is not the head of a ledger of format {FORMAT}")
    numbers, texts = (
        ("number", "at_ms"),
        ("cluster", "directory", "hash", "public_key", "signature"),
    )
    for names, kind in ((numbers, int), (texts, str)):
        for name in names:
            if not isinstance(anchor.get(name), kind):
                raise ValueError(f"its {name} is missing or invalid")  # noqa: TRY004 - of a file
    return SignedHead(**{name: anchor[name] for name in (*numbers, *texts)})


def signed_head(fs: FileSystem, directory: str) -> SignedHead | None:
    """Returns the signed head of a log directory's ledger; None if it has no sound entry.

    Raises:
        DamagedFile: the directory's key is damaged.
        DiskError: a file cannot be read; the key is its owner's only.
    """
    numbers = ledger_numbers(fs, directory)
    entries = list(read_entries(fs, directory, since=numbers[-1] if numbers else 0))
    begins = [entry for entry in entries if entry.kind == BEGIN]
    if not begins:
        return None
    head = _unsigned(entries[-1], begins[-1].members)
    key = SigningKey.load(fs, directory)
    if key is None:
        return head
    head = _unsigned(entries[-1], {**begins[-1].members, "public_key": key.public_key.hex()})
    return SignedHead(**{**asdict(head), "signature": key.sign(head.statement).hex()})


def _unsigned(entry: Entry, begin: Mapping[str, Any]) -> SignedHead:
    return SignedHead(
        cluster=begin["cluster"],
        directory=begin["directory"],
        number=entry.number,
        hash=entry.hash,
        at_ms=entry.at_ms,
        public_key=begin["public_key"],
    )
