"""The common part of decoders and encoders: how their sources are written, compiled and kept."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from protocol.wire.schema import Message, NamedField, fields_of

F = TypeVar("F")


@dataclasses.dataclass(frozen=True, slots=True)
class VersionFields:
    """The fields of a structure in one version."""

    plain: list[NamedField]
    tagged: list[NamedField]
    absent: list[NamedField]


class CodecSource(ABC):
    """Writes the source of one function for one message and version.

    `text` is the source, `names` the objects that it refers to.
    """

    text: str

    def __init__(self, message_type: type[Message], version: int, names: dict[str, Any]) -> None:
        low, high = message_type.versions
        assert low <= version <= high, f"{message_type.__name__} has no version {version}"
        # Constant after construction
        self.version = version
        self.flexible = version >= message_type.flexible_since
        self.names = names
        self._message_name = message_type.__name__
        # State
        self._lines: list[str] = []
        self._indent = 1
        self._variables = 0
        # Fixed-size values for the next packing or unpacking: an expression and a format each.
        self._pending: list[tuple[str, str]] = []

    def compiled(self, function: str) -> Any:
        """Returns the function with this name that the source defines."""
        label = f"<{function} {self._message_name} v{self.version}>"
        # The source comes only from declarations in this package; no byte of a peer is in it.
        exec(compile(self.text, label, "exec"), self.names)  # noqa: S102
        return self.names[function]

    @abstractmethod
    def _flush(self) -> None:
        """Emit one packing or unpacking of the pending fixed-size values."""

    def _emit(self, *lines: str) -> None:
        assert not self._pending
        self._lines += ["    " * self._indent + line for line in lines]

    def _block(self, header: str, body: Callable[[], None]) -> None:
        self._emit(header)
        self._indent += 1
        body()
        self._flush()
        self._indent -= 1

    def _variable(self, prefix: str) -> str:
        self._variables += 1
        return f"{prefix}{self._variables}"

    def _refer(self, value: Any, prefix: str) -> str:
        """Returns a name by which the source refers to a Python value."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def _fields(self, declared: type) -> VersionFields:
        """Returns the fields of a structure in order. A field that can be absent has a default."""
        found = VersionFields([], [], [])
        for field in fields_of(declared):
            if not field.wire.exists_in(self.version):
                assert field.default is not dataclasses.MISSING, f"{declared}.{field.name}"
                found.absent.append(field)
            elif field.wire.is_tagged_in(self.version):
                found.tagged.append(field)
            else:
                found.plain.append(field)
        assert self.flexible or not found.tagged
        return found


class CodecCache(dict[tuple[type[Message], int], F], Generic[F]):
    """Compiled functions of one type, by message class and version.

    A function is compiled when it is first looked up, which takes about a millisecond.
    """

    __slots__ = ("_function", "_source")

    def __init__(self, source: Callable[[type[Message], int], CodecSource], function: str) -> None:
        """
        Args:
            source: writes the source of the function for a message class and version.
            function: the name that the source gives it.
        """
        super().__init__()
        self._source = source
        self._function = function

    def __missing__(self, key: tuple[type[Message], int]) -> F:
        compiled: F = self._source(*key).compiled(self._function)
        self[key] = compiled
        return compiled
