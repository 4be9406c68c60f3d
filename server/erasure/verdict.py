"""Verifies a certificate: reads the logs again, and says whether what it says still holds."""

from __future__ import annotations

from typing import Any

from cleaner.kernel.kernel import siphash128
from server.erasure.certificate import Json
from server.erasure.erasure import KeyClaim
from server.erasure.erasures import Erasures
from server.topics.topics import Topics
from storage.files.paths import topic_id_text
from storage.formats.key_sidecar import hash_key_check
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@loop_thread
class Verifier:
    """One verification."""

    __slots__ = ("_erasures", "_notes", "_partitions", "_problems", "_topics")

    def __init__(self, erasures: Erasures, topics: Topics) -> None:
        self._erasures = erasures
        self._topics = topics
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._partitions: list[Json] = []

    async def verdict(self, said: Json, public_key: str, key: bytes | None) -> Json:
        """Returns the verdict on a certificate whose signature was checked.

        Args:
            said: the body of the certificate.
            public_key: with which it is signed, in hexadecimal digits.
            key: of which the verdict also says whether the certificate is about it.

        Raises:
            CleaningAborted, ProtocolError, StorageError: as `CleanerPool.trace_keys`.
        """
        own = await self._erasures.own_public_key()
        if own.hex() != public_key:
            self._problems.append(
                "it is signed with another key than this broker's: another broker has issued it, or the"
                " signing.key was replaced"
            )
        if key is not None and not await self._erasures.is_about(
            KeyClaim.from_json(said["key"]), key
        ):
            self._problems.append("it is about another key")
        topic = self._topics.get(said["topic"])
        if topic is None or topic_id_text(topic.id) != said["topic_id"]:
            self._problems.append(f"topic {said['topic']} was deleted: its logs cannot be read")
        elif not self._problems:
            for row in said["partitions"]:
                number = row["partition"]
                log = topic.partition(number) if number >= 0 else None
                if isinstance(log, PartitionLog):
                    await self._read(log, row, key)
                else:
                    self._problems.append(f"{said['topic']}-{number} is offline or does not exist")
        return {
            "holds": not self._problems,
            "id": said["id"],
            "state": said["state"],
            "problems": self._problems,
            "notes": self._notes,
            "partitions": self._partitions,
        }

    async def _read(self, log: PartitionLog, row: dict[str, Any], key: bytes | None) -> None:
        """Read one log below the offset of the certificate."""
        hash_key, below = log.identity.hash_key, row["below"]
        if key is not None:
            key_hash = siphash128(hash_key, key)
        elif row["secret"] == hash_key_check(hash_key).hex():
            key_hash = bytes.fromhex(row["key_hash"])
        else:
            self._problems.append(
                f"the key cannot be recognised in {log.topic_partition}: its log directory has another"
                " hash.key than when the certificate was issued; give the key (--key)"
            )
            return
        proof, left = await self._erasures.verify(log, key_hash, below)
        first = proof.traces.first_offset(key_hash)
        if first < below:
            self._problems.append(
                f"{log.topic_partition} has a record of the key at offset {first}, below {below}"
            )
        self._notes += [f"not read: {each.path}: {each.what}" for each in left]
        self._partitions.append(
            {
                "partition": row["partition"],
                "below": below,
                "records_read": proof.traces.records,
                "bytes_read": proof.traces.bytes_read,
            }
        )
