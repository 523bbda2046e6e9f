"""Can what the package does be switched: per tool, per call, and while the program runs?"""

import json

import pytest
from langchain_core.tools import tool

from langchain_ctxwin import (
    ConfigError,
    FileConfig,
    ModelRouter,
    ToolOverrides,
    ToolResultConfig,
    ToolResultGuard,
)
from langchain_ctxwin.observe import MemorySink, ToolResultEvent
from langchain_ctxwin.tool_results.stores import MemoryResultStore
from support.agents import THREAD
from support.routing import info
from support.tool_runs import WIRINGS, call, results

ROWS = json.dumps(
    [
        {"id": number, "name": f"row {number}", "note": "words " * 20}
        for number in range(200)
    ]
)


@tool
def rows() -> str:
    """Return many rows."""
    return ROWS


@tool
def others() -> str:
    """Return as many."""
    return ROWS


class Live:
    """Settings that are exchanged while the program runs."""

    def __init__(self, **groups):
        self.current = FileConfig(**groups)


def shown(guard, wiring, *, is_async=False):
    calls = [call(name, f"c-{name}") for name in ("rows", "others")]
    return {
        str(message.name): str(message.content)
        for message in results(
            wiring, guard, [rows, others], *calls, is_async=is_async, config=THREAD
        )
    }


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_guard_that_is_off_leaves_results_exactly_as_they_are(wiring, is_async):
    """For all tools or for one; nothing is stored, and nothing is told."""
    store, sink = MemoryResultStore(), MemorySink()
    off = ToolResultGuard(ToolResultConfig(enabled=False), store=store, sinks=[sink])
    assert shown(off, wiring, is_async=is_async) == {"rows": ROWS, "others": ROWS}
    assert sink.of(ToolResultEvent) == []
    one = ToolResultGuard(
        ToolResultConfig(
            max_tokens=400, per_tool={"rows": ToolOverrides(enabled=False)}
        )
    )
    found = shown(one, wiring, is_async=is_async)
    assert found["rows"] == ROWS
    assert len(found["others"]) < len(ROWS) / 5


def test_switches_of_the_guard_follow_a_live_configuration():
    """From the next call on."""
    live = Live(tool_results={"max_tokens": 400})
    guard = ToolResultGuard(live)
    assert len(shown(guard, "node")["rows"]) < len(ROWS)
    live.current = FileConfig(tool_results={"enabled": False})
    assert shown(guard, "node")["rows"] == ROWS


def router(config=None):
    infos = [info("small", 8_000, "1"), info("large", 8_000, "10")]
    return ModelRouter(infos, config=config)


def test_a_router_follows_a_live_configuration():
    """From the next request on."""
    live = Live(routing={"complexity": "high"})
    routes = router(live)
    assert routes.route("hi").name == "large"
    live.current = FileConfig(routing={"complexity": "low"})
    assert routes.route("hi").name == "small"
    with pytest.raises(ConfigError, match=r"pass RoutingConfig\(...\), a FileConfig"):
        router(ToolResultConfig())
