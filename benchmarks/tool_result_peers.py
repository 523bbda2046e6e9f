"""What else is done with large tool results? They are cut, or moved to a file with a preview in their place."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import ToolMessage

CUT_CHARS = 80_000
Ways = dict[str, Callable[[str], str]]


@contextmanager
def other_ways(budget: int) -> Iterator[Ways]:
    """Yield the other ways by name; each takes a result and returns what the model sees of it."""
    ways: Ways = {f"{CUT_CHARS:,} characters": lambda text: text[:CUT_CHARS]}
    with tempfile.TemporaryDirectory() as folder:
        yield ways | _evictions(folder, budget)


def _evictions(folder: str, budget: int) -> Ways:
    """The file system middleware of deepagents with its own threshold, and with ours; nothing where it is missing."""
    try:
        from deepagents.backends import FilesystemBackend
        from deepagents.middleware import FilesystemMiddleware
    except ImportError:
        return {}
    backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
    return {
        "deepagents": _evicted_by(FilesystemMiddleware(backend=backend)),
        "deepagents, same budget": _evicted_by(
            FilesystemMiddleware(backend=backend, tool_token_limit_before_evict=budget)
        ),
    }


def _evicted_by(middleware: Any) -> Callable[[str], str]:
    numbers = count()

    def evicted(text: str) -> str:
        call = {"name": "fetch", "args": {}, "id": f"call_{id(numbers)}_{next(numbers)}"}
        request = SimpleNamespace(tool_call=call, state={"messages": []}, runtime=None, tool=None)
        return middleware.wrap_tool_call(request, lambda _: ToolMessage(text, tool_call_id=call["id"])).text

    return evicted
