"""Does the result of every kind of tool come to fit, wherever the guard stands, and is all of it still readable?"""

import base64
import json
from itertools import cycle

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command
from pydantic import BaseModel

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.guard import ContentPrices
from support.oracle import text_tokens
from support.tool_runs import (
    WIRINGS,
    both,
    call,
    everything,
    everywhere,
    facts,
    next_cursor,
    results,
)
from support.walking import FakeClock

ROWS = 120
BUDGET = 600
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()


class Row(BaseModel):
    id: int
    name: str
    note: str


def data():
    return [facts(index) for index in range(ROWS)]


def text():
    return "\n".join(f"{row['name']} {row['note']}" for row in data())


def message_of(name):
    return ToolMessage(
        json.dumps(data()), tool_call_id="c1", name=name, artifact={"raw": ROWS}
    )


IMAGE = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
RETURNED = {
    "as_text": text,
    "as_json_text": lambda: json.dumps({"total": ROWS, "items": data()}),
    "as_dict": lambda: {"total": ROWS, "items": data()},
    "as_list": data,
    "as_models": lambda: [Row(**row) for row in data()],
    "as_blocks": lambda: [{"type": "text", "text": json.dumps(row)} for row in data()],
    "as_texts": lambda: [json.dumps(row) for row in data()],
    "as_image_and_text": lambda: [IMAGE, {"type": "text", "text": json.dumps(data())}],
    "with_artifact": lambda: (data(), {"raw": ROWS}),
    "as_message": lambda: message_of("as_message"),
    "as_command": lambda: Command(update={"messages": [message_of("as_command")]}),
    "as_outputs": lambda: [message_of("as_outputs"), Command(update={})],
}


def tool_of(name, give):
    """Return a tool of this name that returns what `give` does."""
    kind = "content_and_artifact" if name == "with_artifact" else "content"
    return StructuredTool.from_function(
        give, name=name, description="Give.", response_format=kind
    )


def atool_of(name, give):
    """Return an async one."""

    async def agive():
        return give()

    return StructuredTool.from_function(coroutine=agive, name=name, description="Give.")


as_text = tool_of("as_text", text)
CASES = [
    *(
        (tool_of(name, give), is_async)
        for is_async in (False, True)
        for name, give in RETURNED.items()
    ),
    (atool_of("in_the_loop", RETURNED["as_models"]), True),
]


@pytest.mark.parametrize(
    ("wiring", "one", "is_async"),
    [(wiring, *case) for wiring, case in zip(cycle(WIRINGS), CASES, strict=False)],
    ids=[f"{one.name}-{'async' if loop else 'sync'}" for one, loop in CASES],
)
def test_what_a_tool_returns_is_shown_within_its_budget_and_can_be_read_to_its_end(
    wiring, one, is_async
):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    (message,) = results(wiring, guard, [one], call(one.name), is_async=is_async)
    assert text_tokens(message.text) <= BUDGET
    assert (message.status, message.tool_call_id, message.name) == (
        "success",
        "c1",
        one.name,
    )
    has_artifact = one.name in (
        "with_artifact",
        "as_message",
        "as_command",
        "as_outputs",
    )
    assert message.artifact == ({"raw": ROWS} if has_artifact else None)
    read = everything(guard, message.text)
    assert [
        row["name"]
        for row in data()
        if row["name"] not in read or str(row["id"] * 7919) not in read
    ] == []


LINKS = [
    {
        "type": "file",
        "id": "lc_0",
        "url": "https://archive.example/tides.csv",
        "mime_type": "text/csv",
    },
    {
        "type": "file",
        "url": "resource://harbour/map",
        "extras": {"title": "Harbour map"},
    },
    {
        "type": "document",
        "source": {"type": "url", "url": "https://archive.example/pilots.pdf"},
    },
]


@everywhere
@both
@pytest.mark.parametrize(
    "beside",
    [[], [{"type": "text", "text": "Three are there."}]],
    ids=["alone", "with a text"],
)
def test_links_to_files_are_texts_that_show_their_addresses(wiring, is_async, beside):
    """As MCP servers answer: the address is all that a link says, and short, however large the file is."""
    guard, links = ToolResultGuard(ToolResultConfig(max_tokens=600)), [*beside, *LINKS]
    (message,) = results(
        wiring, guard, [tool_of("find", lambda: links)], call("find"), is_async=is_async
    )
    assert "file: https://archive.example/tides.csv (text/csv)" in message.text
    assert "file: resource://harbour/map (Harbour map)" in message.text
    assert "document: https://archive.example/pilots.pdf" in message.text
    assert "lc_0" not in message.text
    assert text_tokens(message.text) <= 600


def test_as_many_images_are_shown_as_the_budget_holds_beside_a_short_text():
    """Half of the budget is kept for texts that need it only."""
    size = ContentPrices(None).content([IMAGE])
    guard = ToolResultGuard(ToolResultConfig(max_tokens=4 * size))
    short, long = (
        {"type": "text", "text": said} for said in ("Five of the harbour.", text() * 20)
    )

    assert [
        len(guard.output([said, *[IMAGE] * 5], "look", {})[1:])
        for said in (short, long)
    ] == [3, 2]


SMALL = {
    "text": "eleven rows", "empty text": "", "object": {"id": 1, "names": ["a", "b"], "1": None}, "number": 7,
    "none": None, "blocks": [{"type": "text", "text": "eleven"}, IMAGE], "texts": ["a", "b"], "no rows": [],
    "int keys": {1: "a"}, "not a number": float("nan"),
}  # fmt: skip


@both
@pytest.mark.parametrize(
    ("wiring", "value"), [*zip(cycle(WIRINGS), SMALL.values(), strict=False)], ids=SMALL
)
def test_a_small_result_is_what_it_would_be_without_a_guard(wiring, is_async, value):
    small = tool_of("small", lambda: value)
    (plain,) = results("plain", None, [small], call("small"), is_async=is_async)
    (message,) = results(
        wiring, ToolResultGuard(), [small], call("small"), is_async=is_async
    )
    assert (message.content, message.status, message.response_metadata) == (
        plain.content,
        "success",
        {},
    )
    made = ToolMessage(
        "small", tool_call_id="c1", name="small", id="m1", additional_kwargs={"a": 1}
    )
    given = tool_of("small", lambda: made)
    assert results(
        wiring, ToolResultGuard(), [given], call("small"), is_async=is_async
    ) == [made]


@everywhere
@both
def test_the_guards_own_tool_is_exempt_from_the_guard(wiring, is_async):
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET), clock=FakeClock())
    (first,) = results(wiring, guard, [as_text], call("as_text"))
    cursor = next_cursor(first.text)
    (page,) = results(
        wiring, guard, [as_text], call("read_more", cursor=cursor), is_async=is_async
    )
    assert (page.text, page.response_metadata) == (guard.read(cursor), {})


@pytest.mark.parametrize("wiring", ["wrap", "agent"])
@both
def test_a_tool_of_yours_with_the_name_of_the_guards_is_refused(wiring, is_async):
    with pytest.raises(ConfigError, match="read_more"):
        results(
            wiring,
            ToolResultGuard(),
            [tool_of("read_more", text)],
            call("read_more"),
            is_async=is_async,
        )


CHOSEN = ToolResultConfig(max_tokens=2_000, fields=("[].id", "[].name"))


@pytest.mark.parametrize(
    "result",
    [
        json.dumps({"error": "no such table"}),
        "plain text",
        json.dumps([{"id": 1, "name": "all"}]),
        "[]",
    ],
    ids=["nothing chosen in it", "text", "nothing else in it", "empty"],
)
def test_configured_fields_leave_a_result_alone_that_they_would_not_shorten(
    result,
):
    """An error has none of the chosen fields: shown in them, it would be hidden."""
    assert ToolResultGuard(CHOSEN).output(result, "rows", {}) == result
