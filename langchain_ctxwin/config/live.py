"""Which settings hold now, when they may change while the program runs?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from langchain_ctxwin.config.context import ContextConfig


@runtime_checkable
class LiveConfig(Protocol):
    """Settings that may be exchanged as a whole at any time; `langchain_ctxwin.reload.ConfigFile` is one."""

    @property
    def current(self) -> ContextConfig:
        """The settings that hold now: read once per request, and used to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Settings that never change, in the form of those that may."""

    current: ContextConfig


def as_live(config: ContextConfig | LiveConfig | None) -> LiveConfig:
    """Return what says which settings hold now; None stands for those of the environment, read once."""
    if isinstance(config, LiveConfig):
        return config
    return Fixed(config or ContextConfig())
