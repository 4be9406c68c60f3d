"""Keys as users give them: as arguments or in a file, as text, hexadecimal or base64."""

from __future__ import annotations

import base64
import enum
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.base.command_end import EXIT_USAGE, CommandFailed


class Form(enum.Enum):
    """How keys are written."""

    TEXT = "text"
    HEX = "hexadecimal"
    BASE64 = "base64"


def form_of(*, is_hex: bool, is_base64: bool) -> Form:
    """Returns the form that the options choose, of which one is set at most."""
    return Form.HEX if is_hex else Form.BASE64 if is_base64 else Form.TEXT


def parse_key(text: str, form: Form) -> bytes:
    """Returns the bytes of a key. Raises CommandFailed."""
    try:
        match form:
            case Form.TEXT:
                return text.encode()
            case Form.HEX:
                return bytes.fromhex(text)
            case Form.BASE64:
                return base64.b64decode(text, validate=True)
    except ValueError:
        raise CommandFailed(EXIT_USAGE, f"{text!r} is not {form.value}") from None


def keys_of(arguments: Sequence[str], file: Path | None, form: Form) -> list[bytes]:
    """Returns all keys, each once, in their order.

    Raises:
        CommandFailed: there is none, one is not in the form, or the file cannot be read.
    """
    texts = [*arguments, *(_lines(file) if file is not None else ())]
    if not texts:
        raise CommandFailed(EXIT_USAGE, "name a key, or a file of keys with --keys-file")
    return list(dict.fromkeys(parse_key(text, form) for text in texts))


def _lines(file: Path) -> list[str]:
    """Returns the lines that are not empty."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(EXIT_USAGE, f"cannot read keys from {file}: {error}") from error
    return [line for line in text.splitlines() if line]
