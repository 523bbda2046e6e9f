"""`lazy`: an attribute that is worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801  # used like `property`
    """Like `functools.cached_property`, without its lock (Python 3.11), which a forked process would find held.

    Two threads at once may both work the value out, and get the same.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        """Work the value out and keep it in the object, where it is found before this from then on."""
        value = self._work_out(owner)
        owner.__dict__[self._work_out.__name__] = value
        return value
