"""The process that decodes values: one request after the other, until its parent closes the socket.

    python -P -m schemas.decoding_child FD

Clients write schemas and values as they like. A schema can be nested so deeply that a library ends the
process, a value of ten bytes can be a list of a billion nulls. So the system bounds the memory of this
process and the CPU time of each request; if it ends, its parent starts another one.
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import lru_cache

import msgspec

from schemas.decoding_frames import Answer, Request, receive, send
from schemas.outcomes import TOO_COMPLEX, BadValue, DecodingFailed, NotInstalled, TooLarge
from schemas.schema import Schema, SchemaType

CPU_SECONDS_MAX = 2.0
MEMORY_BYTES_MAX = 512 << 20
JSON_BYTES_MAX = 4 << 20
SCHEMAS_MAX = 64
"""So many are kept ready to decode with."""

Decode = Callable[[bytes], bytes]


def main() -> None:
    """Answer requests on the socket whose descriptor is the first argument."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        while True:
            try:
                data = receive(parent)
            except (EOFError, ConnectionError):
                return
            # Its signal ends the process, also within C code.
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
            answer = answer_to(data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(parent, answer)


def answer_to(data: bytes) -> Answer:
    """Returns the answer to a request."""
    try:
        request = msgspec.msgpack.decode(data, type=Request)
        decoded = decoder_of(request.schema)(request.data)
    except DecodingFailed as error:
        return Answer(code=error.code, reason=_shown(error))
    except MemoryError:
        return Answer(code=TOO_COMPLEX, reason="it takes too much memory once it is decoded")
    except Exception as error:  # noqa: BLE001 - what libraries raise for bad bytes has no common base
        return Answer(code=BadValue.code, reason=_shown(error, type(error).__name__))
    if len(decoded) > JSON_BYTES_MAX:
        return Answer(
            code=TooLarge.code,
            reason=f"it takes more than {JSON_BYTES_MAX} bytes once it is decoded",
        )
    return Answer(json=decoded)


@lru_cache(SCHEMAS_MAX)
def decoder_of(schema: Schema) -> Decode:
    """Returns the function that decodes values of a schema. Raises UnsupportedSchema, NotInstalled."""
    # Imported here: each is optional, and not needed for the others.
    try:
        match schema.type:
            case SchemaType.AVRO:
                from schemas.avro_values import avro_decoder

                return avro_decoder(schema)
            case SchemaType.PROTOBUF:
                from schemas.protobuf_values import protobuf_decoder

                return protobuf_decoder(schema)
            case SchemaType.JSON:
                from schemas.json_values import decode_json

                return decode_json
    except ImportError as error:
        raise NotInstalled(
            f"the broker lacks {error.name}, which decodes {schema.type.value}:"
            ' install it with `pip install "kompakt[schemas]"` and restart the broker'
        ) from error


def _shown(error: Exception, kind: str = "") -> str:
    text = f"{kind}: {error}" if kind else str(error)
    return text if len(text) <= 500 else text[:500] + "..."


if __name__ == "__main__":
    main()
