"""Does the result of every kind of tool come to fit, wherever the guard stands, and is all of it still readable?"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command
from pydantic import BaseModel

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from langchain_ctxwin.errors import ConfigError
from support.oracle import text_tokens
from support.result_stores import FakeClock
from support.tool_runs import WIRINGS, call, everything, results

ROWS = 120
BUDGET = 600
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()

everywhere = pytest.mark.parametrize("wiring", WIRINGS)
both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class Row(BaseModel):
    id: int
    name: str
    note: str


@dataclasses.dataclass
class Point:
    id: int
    name: str
    note: str


def facts(index: int) -> dict[str, Any]:
    return {"id": index, "name": f"row-{index:03d}", "note": f"the note of row {index} says {index * 7919}"}


def data() -> list[dict[str, Any]]:
    return [facts(index) for index in range(ROWS)]


def text() -> str:
    return "\n".join(f"{row['name']} {row['note']}" for row in data())


@tool
def as_text() -> str:
    """Text."""
    return text()


@tool
def as_json_text() -> str:
    """JSON text."""
    return json.dumps({"total": ROWS, "items": data()})


@tool
def as_dict() -> dict[str, Any]:
    """An object."""
    return {"total": ROWS, "items": data()}


@tool
def as_list() -> list[dict[str, Any]]:
    """Rows."""
    return data()


@tool
def as_models() -> list[Row]:
    """Models."""
    return [Row(**row) for row in data()]


@tool
def as_points() -> list[Point]:
    """Dataclasses."""
    return [Point(**row) for row in data()]


@tool
def as_generator() -> Any:
    """A generator."""
    return (row for row in data())


@tool
def as_blocks() -> list[dict[str, Any]]:
    """Blocks of text."""
    return [{"type": "text", "text": json.dumps(row)} for row in data()]


@tool
def as_texts() -> list[str]:
    """Texts."""
    return [json.dumps(row) for row in data()]


@tool
def as_image_and_text() -> list[dict[str, Any]]:
    """A picture and much text."""
    return [
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
        {"type": "text", "text": json.dumps(data())},
    ]


@tool(response_format="content_and_artifact")
def with_artifact() -> tuple[Any, Any]:
    """Rows and an artifact."""
    return data(), {"raw": ROWS}


@tool
def as_message() -> ToolMessage:
    """A message."""
    return ToolMessage(json.dumps(data()), tool_call_id="c1", name="as_message", artifact={"raw": ROWS})


@tool
def as_command() -> Command[Any]:
    """A command."""
    return Command(update={"messages": [ToolMessage(json.dumps(data()), tool_call_id="c1", name="as_command")]})


@tool
def as_outputs() -> Any:
    """A list of outputs."""
    return [ToolMessage(json.dumps(data()), tool_call_id="c1", name="as_outputs"), Command(update={})]


@tool
async def in_the_loop() -> list[Row]:
    """Models of an async tool."""
    return [Row(**row) for row in data()]


@tool
async def from_an_async_generator() -> Any:
    """An async generator."""

    async def rows() -> Any:
        for row in data():
            yield row

    return rows()


SYNC = [
    as_text,
    as_json_text,
    as_dict,
    as_list,
    as_models,
    as_points,
    as_generator,
    as_blocks,
    as_texts,
    as_image_and_text,
    with_artifact,
    as_message,
    as_command,
    as_outputs,
]
CASES = [
    *((tool_, is_async) for tool_ in SYNC for is_async in (False, True)),
    (in_the_loop, True),
    (from_an_async_generator, True),
]


@everywhere
@pytest.mark.parametrize(
    ("one", "is_async"), CASES, ids=[f"{one.name}-{'async' if loop else 'sync'}" for one, loop in CASES]
)
def test_what_a_tool_returns_is_shown_within_its_budget_and_can_be_read_to_its_end(wiring, one, is_async):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    (message,) = results(wiring, guard, [one], call(one.name), is_async=is_async)
    assert text_tokens(message.text) <= BUDGET
    assert (message.status, message.tool_call_id, message.name) == ("success", "c1", one.name)
    read = everything(guard, message.text)
    assert [row["name"] for row in data() if row["name"] not in read or str(row["id"] * 7919) not in read] == []


@everywhere
@both
@pytest.mark.parametrize("one", [with_artifact, as_message], ids=["tuple", "message"])
def test_the_artifact_stays_whole(wiring, one, is_async):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    (message,) = results(wiring, guard, [one], call(one.name), is_async=is_async)
    assert message.artifact == {"raw": ROWS}


@everywhere
@both
def test_media_that_fits_stays_beside_the_shortened_text(wiring, is_async):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=6_000))
    image = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}

    @tool
    def look() -> Any:
        """Look."""
        return [image, {"type": "text", "text": text() * 20}]

    (message,) = results(wiring, guard, [look], call("look"), is_async=is_async)
    assert [block["type"] for block in message.content] == ["text", "image"]
    assert message.content[1] == image


@everywhere
def test_media_that_is_too_large_is_described_and_kept(wiring):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=300))

    @tool
    def look() -> Any:
        """Look."""
        return [{"type": "image", "base64": PIXEL, "mime_type": "image/png"}] * 12

    (message,) = results(wiring, guard, [look], call("look"))
    assert isinstance(message.content, str)
    assert "image/png" in message.text
    assert PIXEL not in message.text
    assert text_tokens(message.text) <= 300
    assert PIXEL in everything(guard, message.text)


NOISE = base64.b64encode(bytes(range(256)) * 400).decode()  # what audio looks like, 137 thousand characters


@everywhere
@both
@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "audio", "base64": NOISE, "mime_type": "audio/wav"}, {"type": "text", "text": "a song"}],
        ["a caption", {"type": "image", "base64": NOISE, "mime_type": "image/png"}],
    ],
    ids=["audio", "a bare text beside an image"],
)
def test_media_that_the_node_would_print_as_text_does_not_flood_the_window(wiring, is_async, blocks):
    @tool
    def sing() -> Any:
        """Sing."""
        return blocks

    guard = ToolResultGuard(ToolResultConfig(max_tokens=4_000))
    (message,) = results(wiring, guard, [sing], call("sing"), is_async=is_async)
    printed = message.content if isinstance(message.content, str) else message.text
    assert text_tokens(printed) <= 4_000
    assert ("a song" in printed, "a caption" in printed).count(True) == 1


SMALL = {
    "text": "eleven rows",
    "empty text": "",
    "object": {"id": 1, "names": ["a", "b"], "1": None},
    "number": 7,
    "none": None,
    "blocks": [{"type": "text", "text": "eleven"}, {"type": "image", "base64": PIXEL, "mime_type": "image/png"}],
    "texts": ["a", "b"],
    "no rows": [],
    "int keys": {1: "a"},
    "not a number": float("nan"),
}


@everywhere
@both
@pytest.mark.parametrize("value", SMALL.values(), ids=SMALL)
def test_a_small_result_is_what_it_would_be_without_a_guard(wiring, is_async, value):
    @tool
    def small() -> Any:
        """Small."""
        return value

    (plain,) = results("plain", None, [small], call("small"), is_async=is_async)
    (message,) = results(wiring, ToolResultGuard(), [small], call("small"), is_async=is_async)
    assert (message.content, message.status, message.response_metadata) == (plain.content, "success", {})


@everywhere
@both
def test_a_small_message_is_handed_on_itself(wiring, is_async):
    made = ToolMessage("small", tool_call_id="c1", name="small", id="m1", additional_kwargs={"a": 1})

    @tool
    def small() -> Any:
        """Small."""
        return made

    (message,) = results(wiring, ToolResultGuard(), [small], call("small"), is_async=is_async)
    assert message == made


@everywhere
@both
def test_other_updates_of_a_command_stay_as_they_are(wiring, is_async):
    @tool
    def move() -> Any:
        """Move."""
        return Command(
            update={"messages": [ToolMessage(text(), tool_call_id="c1", name="move")], "other": [1, 2]}, goto="there"
        )

    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    command = guard.output(move.invoke(call("move")), "move", {})
    assert (command.update["other"], command.goto) == ([1, 2], "there")
    assert text_tokens(command.update["messages"][0].text) <= BUDGET


HUGE_ERROR = "Traceback: " + "the disk is full, " * 60_000  # about a megabyte


@everywhere
@both
def test_an_error_of_a_megabyte_stays_an_error(wiring, is_async):
    @tool
    def fail() -> Any:
        """Fail."""
        return ToolMessage(HUGE_ERROR, tool_call_id="c1", name="fail", status="error")

    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    (message,) = results(wiring, guard, [fail], call("fail"), is_async=is_async)
    assert message.status == "error"
    assert "Traceback: the disk is full" in message.text
    assert text_tokens(message.text) <= BUDGET


@pytest.mark.parametrize("wiring", ["wrap", "node"])
@both
def test_without_arguments_a_guard_works(wiring, is_async):
    @tool
    def much() -> str:
        """Much."""
        return text() * 10

    guard = ToolResultGuard()
    (message,) = results(wiring, guard, [much], call("much"), is_async=is_async)
    assert text_tokens(message.text) <= 4_000
    assert guard.read(last_of(message)).startswith("[")


def last_of(message: Any) -> str:
    """Return the cursor of a message's metadata, which programs read."""
    cursor: str = message.response_metadata["ctxwin"]["next_cursor"]
    return cursor


def test_programs_read_in_the_metadata_what_the_note_tells_the_model():
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    (message,) = results("wrap", guard, [as_json_text], call("as_json_text"))
    facts_told = message.response_metadata["ctxwin"]
    assert facts_told["result_chars"] == len(as_json_text.invoke({}))
    assert f'cursor="{facts_told["next_cursor"]}"' in message.text


def test_a_value_outside_of_an_agent_is_handed_on_itself_when_it_is_small():
    value = {"id": 1}
    assert ToolResultGuard().output(value, "search", {}) is value


def test_a_generator_outside_of_an_agent_is_not_used_up():
    assert ToolResultGuard().output(iter([1, 2]), "search", {}) == [1, 2]


def test_a_large_value_outside_of_an_agent_becomes_its_first_page():
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    shown = guard.output(data(), "search", {})
    assert text_tokens(shown) <= BUDGET
    assert "row-119" in everything(guard, shown)


@everywhere
@both
def test_the_guards_own_tool_is_exempt_from_the_guard(wiring, is_async):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET), clock=FakeClock())
    (first,) = results(wiring, guard, [as_text], call("as_text"))
    cursor = last_of(first)
    (page,) = results(wiring, guard, [as_text], call("read_more", cursor=cursor), is_async=is_async)
    assert page.text == guard.read(cursor)
    assert page.response_metadata == {}


@both
def test_a_node_without_read_more_can_still_run_it(is_async):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET), clock=FakeClock())
    (first,) = results("bare node", guard, [as_text], call("as_text"))
    (page,) = results("bare node", guard, [as_text], call("read_more", cursor=last_of(first)), is_async=is_async)
    assert page.text == guard.read(last_of(first))


@tool("read_more")
def other_read_more() -> str:
    """Read a book."""
    return text()


@pytest.mark.parametrize("wiring", ["wrap", "bare node", "middleware"])
@both
def test_a_tool_of_yours_with_the_name_of_the_guards_is_refused(wiring, is_async):
    with pytest.raises(ConfigError, match="read_more"):
        results(wiring, ToolResultGuard(), [other_read_more], call("read_more"), is_async=is_async)


def test_what_is_guarded_twice_is_reduced_once():
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    (message,) = results("node", guard, guard.wrap([as_text]), call("as_text"))
    assert message.text.count("Between the marks is data") == 1
    assert message.response_metadata["ctxwin"]["result_chars"] == len(text())
