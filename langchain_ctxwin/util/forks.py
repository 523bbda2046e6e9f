"""Renewal after a fork: threads do not survive one, so that locks they held would stay held for ever."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Something with locks or threads of its own."""

    def renew(self) -> None:
        """Make locks anew and forget threads; called in a child right after the fork."""
        ...


_alive: WeakSet[Renewable] = WeakSet()


def renew_after_fork(one: Renewable) -> None:
    """Have it renewed in every process forked from this one, for as long as it lives."""
    _alive.add(one)


def _renew_all() -> None:
    for one in list(_alive):
        one.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_renew_all)
