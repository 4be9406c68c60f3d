"""Free a large message in steps.

Dropping the last reference to a message of a million elements frees them all in one call, which
holds the interpreter for a third of a second. A generator takes the message apart instead: it moves
the elements of its arrays to a stack and drops them from there, a bounded number between two pauses.

    message ──arrays──> stack ──> element ──arrays──> stack ──> ... ──> nothing left

Objects with other references, such as a row shared by many equal elements, stay whole.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Generator
from typing import Any

from protocol.wire.schema import Kind, Message

STEP_ELEMENTS = 256
"""Elements between two pauses: about 0.1 ms."""

_REFERENCES = 2
"""References to an element that only our stack held: our variable, and `getrefcount`'s argument."""

_arrays: dict[type, tuple[str, ...]] = {}


def dismantle(message: Message) -> Generator[None, None, None]:
    """Free the contents of a message, with a pause after each step.

    The message must not be used afterwards: its arrays are empty.
    """
    stack: list[list[Any]] = []
    _take_arrays(message, stack)
    left = STEP_ELEMENTS
    while stack:
        if not stack[-1]:
            stack.pop()
            continue
        element = stack[-1].pop()
        if sys.getrefcount(element) == _REFERENCES:
            _take_arrays(element, stack)
        del element
        left -= 1
        if left <= 0:
            yield
            left = STEP_ELEMENTS


def _take_arrays(element: Any, stack: list[list[Any]]) -> None:
    """Move the arrays of an element of a declared class to the stack; other values have none."""
    for name in _array_names(type(element)):
        array = getattr(element, name)
        # An array of another type (`LazyArray`) makes its elements when they are read.
        if array and isinstance(array, tuple | list):
            object.__setattr__(element, name, ())
            if sys.getrefcount(array) == _REFERENCES:
                stack.append(array if isinstance(array, list) else list(array))
        del array


def _array_names(declared: type) -> tuple[str, ...]:
    """Returns the fields of a declared class that hold arrays."""
    names = _arrays.get(declared)
    if names is None:
        names = ()
        if dataclasses.is_dataclass(declared):
            fields = (f for f in dataclasses.fields(declared) if "wire" in f.metadata)
            names = tuple(f.name for f in fields if f.metadata["wire"].type.kind is Kind.ARRAY)
        _arrays[declared] = names
    return names
