"""What can be wrong with bytes from a peer.

    ProtocolError                 something a peer sent is wrong; nothing was changed by it
    |-- MalformedFrame            the stream cannot be cut into frames any more: close it
    |-- FrameTooLarge             a frame announces more than we accept: close it
    |-- DecodeError               a frame is not the message it says it is: close it
    |-- UnsupportedApi            an API key or version that is not served: close it
    |-- EncodeError               a message cannot be written in the version asked for
    |-- CorruptBatch              a record batch whose bytes are damaged -> CORRUPT_MESSAGE
    |-- UnsupportedMagic          a record batch of an older format      -> INVALID_RECORD
    |-- InvalidRecord             a sound batch that breaks a rule       -> INVALID_RECORD
    |-- UnsupportedCodec          an unknown compression  -> UNSUPPORTED_COMPRESSION_TYPE
    `-- DecompressionTooLarge     records that inflate beyond a bound    -> MESSAGE_TOO_LARGE

`server/dispatch.py` is the one place that turns these into error codes or a closed connection.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """A peer's bytes break the protocol. The peer is told or cut off; nobody else notices."""


class MalformedFrame(ProtocolError):
    """A frame's size is negative: no later byte of the stream can be trusted."""


class FrameTooLarge(ProtocolError):
    """A frame announces more bytes than the listener accepts; raised before they are buffered."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"frame of {size} bytes, at most {size_max}")
        self.size = size
        self.size_max = size_max


class DecodeError(ProtocolError):
    """Bytes are not the message that their header announces; nothing of it has been done."""


class EncodeError(ProtocolError):
    """A message holds what its version cannot carry: a null, a range, a field of a later version.

    It is our own mistake or, where a value came from a peer, that peer's wish for something its
    version of the API cannot say.
    """


class UnsupportedApi(ProtocolError):
    """A request names an API key, or a version of one, that is not served."""

    def __init__(self, key: int, version: int) -> None:
        super().__init__(f"API key {key} version {version} is not served")
        self.key = key
        self.version = version


class CorruptBatch(ProtocolError):
    """A record batch is damaged: its lengths do not fit or its CRC differs. Retrying may help."""


class UnsupportedMagic(ProtocolError):
    """A record batch has a message format other than 2; the producer is too old for us."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record batch of message format {magic}, only 2 is served")
        self.magic = magic


class InvalidRecord(ProtocolError):
    """A batch whose bytes are intact breaks a rule, such as a record without key on a compacted
    topic. The whole batch is refused and retrying it is futile.

    `index` is the offending record's position in its batch, None when it is the batch itself.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class UnsupportedCodec(ProtocolError):
    """A batch's attributes name a compression type that Kafka does not define."""

    def __init__(self, codec: int) -> None:
        super().__init__(f"compression type {codec} does not exist")
        self.codec = codec


class DecompressionTooLarge(ProtocolError):
    """Compressed records would inflate beyond `size_max` bytes; inflating stopped there."""

    def __init__(self, size_max: int) -> None:
        super().__init__(f"records inflate to more than {size_max} bytes")
        self.size_max = size_max
