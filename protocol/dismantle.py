"""Free a large message in steps.

To drop the last reference to a message of a million elements frees them all in one call, which
holds the interpreter for a third of a second. A generator takes the message apart instead: it moves
the elements of its arrays to a stack and drops them from there, so many between two pauses.

    message ──arrays──> stack ──> element ──arrays──> stack ──> ... ──> nothing left

What others refer to, such as a row that answers for many equal elements, is left whole.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Generator
from typing import Any

from protocol.schema import Kind, Message

STEP_ELEMENTS = 256
"""Elements between two pauses: about 0.1 ms."""

_REFERENCES = 2
"""Of an element that only our stack held: our variable, and the argument of `getrefcount`."""

_arrays: dict[type, tuple[str, ...]] = {}


def dismantle(message: Message) -> Generator[None, None, None]:
    """Free what a message holds, with a pause after each step.

    The message is not to be used any more: its arrays are empty.
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
    """Move the arrays of an element of ours to the stack; other values have none."""
    for name in _array_names(type(element)):
        array = getattr(element, name)
        if array:
            object.__setattr__(element, name, ())
            if sys.getrefcount(array) == _REFERENCES:
                stack.append(array if isinstance(array, list) else list(array))
        del array


def _array_names(declared: type) -> tuple[str, ...]:
    """The fields of a declared class that hold arrays."""
    names = _arrays.get(declared)
    if names is None:
        names = ()
        if dataclasses.is_dataclass(declared):
            fields = (f for f in dataclasses.fields(declared) if "wire" in f.metadata)
            names = tuple(f.name for f in fields if f.metadata["wire"].type.kind is Kind.ARRAY)
        _arrays[declared] = names
    return names
