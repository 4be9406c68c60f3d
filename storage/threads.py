"""Which thread may call: `@loop_thread` and `@any_thread`, on classes and on their methods.

    @loop_thread class    methods and properties belong to the loop, except those with `@any_thread`
    @any_thread class     any thread may use it, except for the methods with `@loop_thread`
    special methods       unchecked, and class methods too: a worker may build what the loop uses

The decorators return what they decorate, unchanged, unless `KOMPAKT_DEBUG_THREADS` was set when this
module was imported, as it is in tests and in the brokers that they start. Then the first thread that
calls a method of the loop owns the object, until that thread ends. Such a call from another thread
raises AssertionError, and logs it, because a broad `except` may hide the exception. A method's mark is
checked only if its class is marked too.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, overload

IS_CHECKED = "KOMPAKT_DEBUG_THREADS" in os.environ
"""Whether the decorators check who calls."""

_log = logging.getLogger("storage.threads")

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

_MARK = "__kompakt_thread__"
_LOOP, _ANY = "loop", "any"

# By the object's id, because few classes have room for another attribute: its owner, and the owner's
# first call. A constructor removes the entry of an object that was at the same address before.
_owners: dict[int, tuple[threading.Thread, str]] = {}


@overload
def loop_thread(decorated: type[C], /) -> type[C]: ...
@overload
def loop_thread(decorated: Callable[P, R], /) -> Callable[P, R]: ...
def loop_thread(decorated: Any, /) -> Any:
    """Only the thread of the event loop calls this: without a loop, one and the same thread."""
    return _decorated(decorated, _LOOP) if IS_CHECKED else decorated


@overload
def any_thread(decorated: type[C], /) -> type[C]: ...
@overload
def any_thread(decorated: Callable[P, R], /) -> Callable[P, R]: ...
def any_thread(decorated: Any, /) -> Any:
    """Any thread may call this at any time."""
    return _decorated(decorated, _ANY) if IS_CHECKED else decorated


def _decorated(decorated: Any, mark: str) -> Any:
    if not isinstance(decorated, type):
        setattr(decorated, _MARK, mark)
        return decorated
    for name, member in tuple(vars(decorated).items()):
        if not (name.startswith("__") and name.endswith("__")):
            checked = _checked_member(member, mark)
            if checked is not member:
                setattr(decorated, name, checked)
    any_class: Any = decorated
    any_class.__init__ = _forgetting(any_class.__init__)
    return decorated


def _checked_member(member: object, default: str) -> object:
    """Returns a method or property of a class with its check, if it belongs to the loop."""
    if isinstance(member, property):
        get, set_ = (_checked_member(each, default) for each in (member.fget, member.fset))
        return property(get, set_, member.fdel, member.__doc__)  # type: ignore[arg-type]
    if isinstance(member, FunctionType) and getattr(member, _MARK, default) == _LOOP:
        return _checked(member)
    return member


def _checked(function: FunctionType) -> Callable[..., Any]:
    """Returns a method with its check. A coroutine's caller is checked when it makes the coroutine."""

    @functools.wraps(function)
    def called(self: object, *args: Any, **kwargs: Any) -> Any:
        _check(self, function)
        return function(self, *args, **kwargs)

    return called


def _check(called: object, function: FunctionType) -> None:
    """Raise AssertionError unless the calling thread owns the object, or can become its owner."""
    caller = threading.current_thread()
    owner, first_call = _owners.setdefault(id(called), (caller, function.__qualname__))
    if owner is caller:
        return
    if not owner.is_alive():
        _owners[id(called)] = (caller, function.__qualname__)
        return
    text = (
        f"{function.__qualname__} was called in the thread {caller.name}, but its object belongs to the"
        f" thread {owner.name}, which called {first_call}"
    )
    _log.error("%s", text, stack_info=True)
    raise AssertionError(text)


def _forgetting(construct: Callable[..., None]) -> Callable[..., None]:
    """Returns a constructor after which an object has no owner yet."""

    @functools.wraps(construct)
    def constructed(self: object, *args: Any, **kwargs: Any) -> None:
        _owners.pop(id(self), None)
        construct(self, *args, **kwargs)
        _owners.pop(id(self), None)

    return constructed
