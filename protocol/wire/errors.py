"""Errors in bytes from a peer.

    ProtocolError                 the bytes of a peer are wrong; they changed nothing
    |-- MalformedFrame            the stream can no longer be cut into frames: close it
    |-- FrameTooLarge             a frame announces more than we accept: close it
    |-- DecodeError               a frame is not the message it says it is: close it
    |-- UnsupportedApi            an API key or version that is not served: close it
    |-- EncodeError               a message cannot be written in the requested version
    |-- CorruptBatch              a record batch whose bytes are damaged -> CORRUPT_MESSAGE
    |-- UnsupportedMagic          a record batch of an older format      -> INVALID_RECORD
    |-- InvalidRecord             a sound batch that breaks a rule       -> INVALID_RECORD
    |-- UnsupportedCodec          an unknown compression  -> UNSUPPORTED_COMPRESSION_TYPE
    `-- DecompressionTooLarge     records that inflate beyond a bound    -> MESSAGE_TOO_LARGE

`server/dispatch.py` is the one place that turns these into error codes or a closed connection.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """A peer's bytes violate the protocol. Only that peer gets an error or loses its connection."""


class MalformedFrame(ProtocolError):
    """A frame's size is negative: no later byte of the stream can be trusted."""


TLS_HANDSHAKE_START = 0x160301
"""The first bytes of a TLS handshake; as the size of a frame they are 369 million."""
TLS_ON_PLAINTEXT = (
    "it looks like a TLS handshake on a listener without TLS: check the client's security.protocol"
)


class FrameTooLarge(ProtocolError):
    """A frame announces more bytes than the listener accepts; raised before they are buffered."""

    def __init__(self, size: int, size_max: int) -> None:
        hint = f"; {TLS_ON_PLAINTEXT}" if size >> 8 == TLS_HANDSHAKE_START else ""
        super().__init__(f"frame of {size} bytes, at most {size_max}{hint}")
        self.size = size
        self.size_max = size_max


class DecodeError(ProtocolError):
    """Bytes are not the message that their header announces; no part of it was carried out."""


class EncodeError(ProtocolError):
    """A message holds a value that its version cannot carry: a null, a value out of range, or a field
    of a later version.

    This is a bug of ours or, if the value came from a peer, a request for something that the peer's
    version of the API cannot express.
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
