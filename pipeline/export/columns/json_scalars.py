"""Reads numbers, times and bytes of JSON as Spark's `from_json` reads them, or refuses them.

Where Spark is lenient, this reads a part of what Spark reads, and refuses the rest: never another value.

    TIMESTAMP      text as 2026-01-02T03:04:05.123456789+01:30 or 2026-01-02; also with a space,
                   with parts of one digit, without a zone (UTC); a fraction's digits after the sixth
                   are cut. A number: seconds
    DATE           text as 2026-01-02; what follows a T or a space is ignored
    DECIMAL        a number, or text with one, where commas are ignored; rounded half up
    DOUBLE, FLOAT  a number, or "NaN", "Infinity", "+Infinity", "-Infinity", "+INF", "-INF"

Source: Spark's JacksonParser, SparkDateTimeUtils.stringToTimestamp, ExprUtils.getDecimalParser.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.export.columns.spark_types import TIMESTAMP

SPECIAL = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1).toordinal()
SECOND = 1_000_000
"""In microseconds."""
ZONE_SECONDS_MAX = 18 * 3600

_DAY = r"(\d{4})-(\d\d?)-(\d\d?)"
_TIME = r"(?:[T ](\d\d?):(\d\d?):(\d\d?)(?:\.(\d{0,9}))?"
_LOCAL = re.compile(_DAY + _TIME + r")?", re.ASCII)
_ZONED = re.compile(_DAY + _TIME + r"(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)
_DATE = re.compile(_DAY + r"(?:[T ].*)?", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DIGITS = Context(prec=100, rounding=ROUND_HALF_UP)


def timestamp(value: int | str) -> int:
    """Returns the microseconds since 1970. Raises ValueError, OverflowError."""
    if isinstance(value, int):
        if not -(2**63) <= value * SECOND < 2**63:
            raise OverflowError("the seconds are too many")
        return value * SECOND
    found = _ZONED.fullmatch(value)
    if found is None:
        raise ValueError("it is no timestamp")
    return _micros(found) - _offset_seconds(found[8]) * SECOND


def usual_timestamps(values: Sequence[int | str | None]) -> pa.Array:
    """Returns timestamps that are all in UTC, with parts of two digits. Raises TypeError, ValueError."""
    return _cast(values, r"^[1-9]\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?Z$", TIMESTAMP)


def usual_days(values: Sequence[str | None]) -> pa.Array:
    """Returns dates with parts of two digits, and nothing else. Raises ValueError."""
    return _cast(values, r"^[1-9]\d{3}-\d\d-\d\d$", pa.date32())


def _cast(values: Sequence[Any], form: str, kind: pa.DataType) -> pa.Array:
    texts = pa.array(values, pa.string())
    _refuse_other_forms(texts, form)
    return texts.cast(kind)


def _refuse_other_forms(texts: pa.StringArray, form: str) -> None:
    if pc.all(pc.match_substring_regex(texts, form)).as_py() is False:
        raise ValueError("one has another form")


def local_timestamp(value: str) -> int:
    """Returns the microseconds since 1970 of a time without a zone. Raises ValueError."""
    found = _LOCAL.fullmatch(value)
    if found is None:
        raise ValueError("it is no timestamp without a zone")
    return _micros(found)


def _micros(found: re.Match[str]) -> int:
    parts = [int(part or 0) for part in found.groups()[:6]]
    passed = datetime(*parts, tzinfo=UTC) - EPOCH  # type: ignore[misc, arg-type]
    fraction = (found[7] or "").ljust(6, "0")[:6]
    return (passed.days * 86_400 + passed.seconds) * SECOND + int(fraction)


def _offset_seconds(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    seconds = hours * 3600 + minutes * 60
    if minutes > 59 or seconds > ZONE_SECONDS_MAX:
        raise ValueError(f"there is no zone {zone}")
    return -seconds if zone[0] == "-" else seconds


def day(value: str) -> int:
    """Returns the days since 1970. Raises ValueError."""
    found = _DATE.fullmatch(value)
    if found is None:
        raise ValueError("it is no date")
    return date(int(found[1]), int(found[2]), int(found[3])).toordinal() - EPOCH_DAY


def double(value: float | str) -> float:
    """Returns a number. Raises KeyError: text that the decoder let through."""
    return SPECIAL[value] if isinstance(value, str) else value


def single(raw: msgspec.Raw) -> float | None:
    """Returns a number of 32 bits from JSON. Raises ValueError, OverflowError."""
    text = _unquoted(raw)
    if text is None or text in SPECIAL:
        return None if text is None else SPECIAL[text]
    if bytes(raw).startswith(b'"') or _NUMBER.fullmatch(text) is None:
        raise ValueError("it is no number")
    near = float(text)
    # Raises OverflowError for what is too large: a native "f" is infinite then.
    (found,) = struct.unpack("<f", struct.pack("<f", near))
    bits = int.from_bytes(struct.pack(">d", near))
    # Rounding twice may be another number than rounding once, which Spark does.
    is_doubtful = bits & 0x1FFF_FFFF == 0x1000_0000 or abs(near) < 2**-126
    if is_doubtful and Decimal(near) != Decimal(text):
        raise ValueError("it has too many digits for a FLOAT")
    # Zero without a point is an integer, which has no sign.
    return 0.0 if text == "-0" else float(found)


def decimal_of(precision: int, scale: int) -> Callable[[msgspec.Raw], Decimal | None]:
    """Returns the function that reads decimals from JSON. It raises ValueError, ArithmeticError."""
    unit = Decimal(1).scaleb(-scale)
    bound = Decimal(10) ** (precision - scale)

    def read(raw: msgspec.Raw) -> Decimal | None:
        text = _unquoted(raw)
        if text is None:
            return None
        number = text.replace(",", "")
        if _NUMBER.fullmatch(number) is None:
            raise ValueError("it is no number")
        found = Decimal(number).quantize(unit, context=_DIGITS)
        if abs(found) >= bound:
            raise OverflowError("it has too many digits")
        return found

    return read


def usual_decimals_of(
    precision: int, scale: int
) -> Callable[[Sequence[msgspec.Raw | None]], pa.Array]:
    """Returns the function that reads decimals that need no rounding. It raises ValueError."""
    # Arrow does not notice digits that are too many.
    fraction = rf"(\.\d{{1,{scale}}})?" if scale else ""
    form = rf'^"?-?\d{{1,{precision - scale}}}{fraction}"?$'

    def read(raws: Sequence[msgspec.Raw | None]) -> pa.Array:
        found = pa.array([None if raw is None else bytes(raw) for raw in raws], pa.binary())
        texts = found.cast(pa.string())
        texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)
        _refuse_other_forms(texts, form)
        return pc.utf8_trim(texts, '"').cast(pa.decimal128(precision, scale))

    return read


def _unquoted(raw: msgspec.Raw) -> str | None:
    """Returns the text of a number, or a text; None for null."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str)
    return None if data == b"null" else data.decode()
