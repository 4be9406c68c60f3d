"""Declares the small immutable objects of which each request creates several.

    @value_class
    class Appended:
        base_offset: Offset
        next_offset: Offset

A frozen dataclass sets each of its fields by a call, so it takes two to four times as long to create.
These are immutable for mypy, which refuses every assignment to a field; at run time nothing checks it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, dataclass_transform, overload

C = TypeVar("C")


@overload
def value_class(cls: type[C]) -> type[C]: ...
@overload
def value_class(*, kw_only: bool) -> Callable[[type[C]], type[C]]: ...


@dataclass_transform(frozen_default=True)
def value_class(
    cls: type[C] | None = None, *, kw_only: bool = False
) -> type[C] | Callable[[type[C]], type[C]]:
    """Turn a declaration into a dataclass with slots that is compared and hashed by its fields.

    Args:
        kw_only: whether the fields are passed by keyword only.
    """
    make = dataclasses.dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
    return make if cls is None else make(cls)
