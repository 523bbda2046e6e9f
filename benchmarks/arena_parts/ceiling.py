"""How stable can a prefix be when only the start of the history moves, and only when the next request does not fit?"""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from arena_parts.scenarios import input_limit, scenario
from arena_parts.script import Call, Scenario
from arena_parts.sizes import parts_of, total_tokens

LOW_WATER = 0.5  # of the room is left when the start moves
LARGEST_STEP = 0.25  # of the room: larger steps cannot be shown whole by anybody


def ceiling(name: str, window: int) -> list[float]:
    """Shares of each request that the next one repeats."""
    script = scenario(name, window)
    tools = [convert_to_openai_tool(tool) for tool in script.tools]
    fixed = total_tokens(parts_of([SystemMessage(script.system_prompt)], tools))
    room = input_limit(window) - fixed
    view: list[int] = []
    shares: list[float] = []
    previous = 0
    for size, is_asked in _steps(script):
        view.append(min(size, int(LARGEST_STEP * room)))
        if not is_asked:
            continue
        moved = sum(view) > room
        while moved and len(view) > 1 and sum(view) > LOW_WATER * room:
            view.pop(0)
        if previous:
            shares.append(min(1.0, fixed / previous) if moved else 1.0)
        previous = fixed + sum(view)
    return shares


def _steps(script: Scenario) -> Iterator[tuple[int, bool]]:
    """Tokens of each step, and whether a request follows it."""
    for turn in script.turns:
        yield _size(HumanMessage(turn.user)), True
        for calls in turn.steps:
            yield _step(script, calls), True
        yield _size(AIMessage(turn.answer)), False


def _step(script: Scenario, calls: tuple[Call, ...]) -> int:
    made = [call.made() for call in calls]
    results = [ToolMessage(script.results[c.key], tool_call_id=str(m["id"])) for c, m in zip(calls, made, strict=True)]
    return _size(AIMessage("", tool_calls=made), *results)


def _size(*messages: AIMessage | HumanMessage | ToolMessage) -> int:
    return total_tokens(parts_of(messages, [])[1:])
