"""Are the arguments of a guard, and the tools it is to guard, what they have to be?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool

from langchain_ctxwin.config import FileConfig, LiveConfig, ToolResultConfig
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.cursors import CursorSigner
from langchain_ctxwin.tool_results.notes import READ_MORE
from langchain_ctxwin.tool_results.read_more import is_read_more

NAME_TAKEN = f"a tool has the name {READ_MORE!r}, which the guard's own tool has: give yours another name"


def settings_of(config: Any) -> Any:
    """Return the settings for tool results in what was given as a configuration, as they are now."""
    current = config.current if isinstance(config, LiveConfig) else config
    return current.tool_results if isinstance(current, FileConfig) else current


def as_own_tool(one: Any) -> BaseTool:
    """Return a tool, or a function as one.

    Raises:
        ConfigError: it is none, or it would hide `read_more`.
    """
    try:
        found = one if isinstance(one, BaseTool) else as_tool(one)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{one!r:.80} is no tool: pass functions and BaseTools ({error})") from error
    if not isinstance(found, BaseTool):
        raise ConfigError(f"{one!r:.80} is no tool: pass functions and BaseTools")
    if found.name == READ_MORE and not is_read_more(found):
        raise ConfigError(NAME_TAKEN)
    return found


def check_tools(tools: Any) -> None:
    """Raise `ConfigError` for what is no list of tools."""
    if isinstance(tools, BaseTool | str) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools={tools!r:.80}: pass a list of tools")


def check_arguments(*, config: Any, signer: Any, store: Any, **functions: Any) -> None:
    """Raise `ConfigError` for arguments that would fail at the first large result."""
    if config is not None and not isinstance(settings_of(config), ToolResultConfig):
        raise ConfigError(f"config={config!r:.80}: pass a ToolResultConfig, a FileConfig or a ConfigFile, or None")
    if not isinstance(signer, CursorSigner | None):
        raise ConfigError(f"signer={type(signer).__name__}: pass a CursorSigner, or None")
    if store is not None and (
        isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in ("put", "get", "delete"))
    ):
        raise ConfigError(
            f"store={store!r:.80} has no methods put, get and delete: pass MemoryResultStore() or the like"
        )
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ConfigError(f"{name}={function!r:.80} cannot be called: pass a function, or leave it out")
