"""Are recorded conversations read whatever wrote them, and is what cannot be read told with its place?"""

import gzip
import json
import sqlite3
import tracemalloc
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
    message_to_dict,
)

from langchain_ctxwin import ConfigError
from langchain_ctxwin.replay import LeftOut, read_conversations
from langchain_ctxwin.replay.playing import needed_values
from langchain_ctxwin.replay.threads import is_address, shown_address
from langchain_ctxwin.testing import request_faults

CALL = {"name": "find", "args": {"invoice": "INV-1"}, "id": "c1"}
TALK = (
    SystemMessage("Be brief."),
    HumanMessage("What of INV-1? Grüße"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("paid", tool_call_id="c1"),
    AIMessage("It was paid."),
)
ROWS = convert_to_openai_messages(TALK)
SAID = [(message.type, message.text) for message in TALK]
ORPHANS = "results of calls that are not there before them"
USER, ANSWER = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
)


def calling(*keys, arguments="{}"):
    """An answer in OpenAI's form that makes calls."""
    calls = [
        {
            "id": key,
            "type": "function",
            "function": {"name": "find", "arguments": arguments},
        }
        for key in keys
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(key):
    """A tool result in OpenAI's form."""
    return {"role": "tool", "content": f"of {key}", "tool_call_id": key}


def read(*paths):
    """What is read, and what is told."""
    faults = []
    return list(read_conversations(paths, tell=faults.append)), faults


@pytest.fixture
def written(tmp_path):
    """Write a file, and return its path."""

    def write(content, name="runs.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(
            content if isinstance(content, bytes) else lines(content).encode()
        )
        return path

    return write


def lines(rows):
    return rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows))


def said(conversation):
    return [(message.type, message.text) for message in conversation.messages]


BROKEN = AIMessage(
    "",
    invalid_tool_calls=[
        {"name": "f", "args": '{"path": "src/a.py', "id": "1", "error": "x"}
    ],
)


@pytest.mark.parametrize(
    ("reply", "needed"),
    [
        ("Look.\n\n```bash\ncat src/a.py\n```", ["src/a.py"]),
        ("Look.\n\n```mswea_bash_command \ncat src/a.py\n```", ["src/a.py"]),
        ("Look.\n<command>\ncat src/a.py\n</command>", ["src/a.py"]),
        (
            '  <invoke name="bash"><parameter name="command">cat src/a.py</parameter></invoke>',
            ["src/a.py"],
        ),
        (
            "<function=bash>\n<parameter=command>cat src/a.py</parameter>\n</function>",
            ["src/a.py"],
        ),
        (
            "<thinking>\nnow src/b.py\n</thinking>\n<read_file><path>src/a.py</path></read_file>",
            ["src/a.py"],
        ),
        ([{"type": "text", "text": "<bash>cat src/a.py</bash>"}], ["src/a.py"]),
        *(
            (text, [])
            for text in (
                "See src/a.py.",
                "see <b>src/a.py</b>",
                "<command>cat src/a.py",
                "```\nsrc/a.py",
            )
        ),
        (BROKEN, ["src/a.py"]),
    ],
)
def test_commands_of_agents_without_tool_calls_are_known_by_their_marks(reply, needed):
    """What is only said is no command; arguments that are no JSON name what they need."""
    reply = reply if isinstance(reply, AIMessage) else AIMessage(reply)
    assert needed_values(reply, ["There are src/a.py and src/b.py."]) == needed


@pytest.mark.parametrize(
    "name", ["runs.jsonl", "runs.json", "runs.JSONL", "runs.jsonl.gz"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_files_are_utf_8_with_or_without_a_mark(written, name, encoding):
    content = (json.dumps({"messages": ROWS}, ensure_ascii=False) + "\n").encode(
        encoding
    )
    (found,), faults = read(
        written(gzip.compress(content) if name.endswith("gz") else content, name)
    )
    assert (said(found), faults) == (SAID, [])


def test_what_is_no_conversation_is_told_with_its_line(written):
    good = json.dumps({"messages": ROWS})
    rows = [
        good,
        "{broken",
        '"a text"',
        '{"messages": []}',
        json.dumps({"messages": [USER]}),
        "",
        good[:90],
    ]
    found, faults = read(written("\n".join(rows).encode() + b"\xff\xfe"))
    assert [len(one.messages) for one in found] == [5]
    assert [fault.split(":")[1] for fault in faults] == ["2", "3", "4", "5", "7", "7"]
    assert "no JSON" in read(written("[", "cut.json"))[1][0]


def test_bytes_that_cannot_be_read_are_told_once_a_line(written):
    row = json.dumps({"messages": [USER, ANSWER]}).replace("Hi", "???").encode()
    path = written(row.replace(b"???", b"\xff\xff\xff") + b"\n" + row, "runs.jsonl")
    assert read(path)[1] == [f"{path}:1: bytes that are no UTF-8 were replaced"]
    path = written(row.replace(b"???", b"\xff"), "runs.json")
    assert read(path)[1] == [f"{path}:1: bytes that are no UTF-8 were replaced"]


def test_half_of_a_character_outside_the_first_plane_is_replaced(written):
    messages = [
        {"role": "user", "content": "x\ud83d \U0001f600"},
        calling("c", arguments=json.dumps({"x": "\udc00"})),
    ]
    (found,), faults = read(written([{"messages": messages, "id": "a\udc00"}]))
    assert (found.messages[0].text, found.name, faults) == (
        "x\ufffd \U0001f600",
        "a\ufffd",
        [],
    )
    assert found.messages[1].tool_calls[0]["args"] == {"x": "\ufffd"}
    row = json.dumps(
        {"messages": [{"role": "user", "content": "\ufffd"}, ANSWER]},
        ensure_ascii=False,
    )
    # one that stands in the file is no fault
    (found,), faults = read(written(row.encode()))
    assert (found.messages[0].text, faults) == ("\ufffd", [])


@pytest.mark.parametrize("damage", ["cut", "changed", "tail"])
def test_a_damaged_archive_gives_what_comes_before_the_damage(written, damage):
    text = "\n".join(
        json.dumps({"id": str(n), "messages": [USER, ANSWER], "x": f"{n * 7919}" * 20})
        for n in range(2000)
    )
    packed = bytearray(gzip.compress(text.encode()))
    if damage == "changed":
        packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    content = {"cut": packed[:-5000], "changed": packed, "tail": packed + b"tail"}[
        damage
    ]
    path = written(bytes(content), "a.jsonl.gz")
    found, faults = read(path)
    assert 400 < len(found) <= 2000
    assert [one.name for one in found] == [str(n) for n in range(len(found))]
    assert faults[-1].startswith(f"{path}: left out the rest: broken off (")


def test_what_is_no_archive_and_what_holds_nothing_are_told(written):
    path = written(lines([{"messages": ROWS}]).encode(), "a.jsonl.gz")
    assert read(path) == (
        [],
        [f"{path}: left out the rest: broken off (Not a gzipped file (b'{{\"'))"],
    )
    for name in ("a.jsonl", "a.json"):
        path = written("\n \n", name)
        assert read(path) == ([], [f"{path}: nothing in it"])


def test_messages_as_anthropic_has_them_are_read(written):
    use = {
        "type": "tool_use",
        "id": "c1",
        "name": "find",
        "input": {"invoice": "INV-1"},
    }
    answers = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "paid"},
        {"type": "text", "text": "Well?"},
    ]
    messages = [
        USER,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": answers},
        ANSWER,
    ]
    (found,), faults = read(written([{"system": "Be brief.", "messages": messages}]))
    kinds = [SAID[0], ("human", "Hi"), *SAID[2:4], ("human", "Well?"), ("ai", "Hello")]
    assert (said(found), faults) == (kinds, [])
    assert found.messages[2].tool_calls == TALK[2].tool_calls
    assert request_faults(found.messages) == []


def event(message, **more):
    """A line of a coding agent's session."""
    return {
        "type": message["role"],
        "sessionId": "s1",
        "uuid": "u",
        "message": message,
        **more,
    }


def test_a_message_inside_each_event_is_read_by_session_and_agent(written):
    """The parts of one answer stand in lines of their own, and other events lie between them."""
    uses = [
        {"type": "tool_use", "id": f"c{n}", "name": "find", "input": {"n": n}}
        for n in (1, 2)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"r{n}"}
        for n in (1, 2)
    ]
    inner = [event(USER, agentId="a7"), event(ANSWER, agentId="a7")]
    path = written(
        [
            {"type": "summary", "summary": "of another", "leafUuid": "x"},
            event(USER),
            event(
                {
                    "role": "assistant",
                    "id": "m",
                    "content": [{"type": "text", "text": "I look."}],
                }
            ),
            event({"role": "assistant", "id": "m", "content": [uses[0]]}),
            event({"role": "user", "content": [results[0]]}),
            {
                "type": "system",
                "subtype": "note",
                "sessionId": "s1",
                "content": "A hook ran.",
            },
            event({"role": "assistant", "id": "m", "content": [uses[1]]}),
            *inner,
            event({"role": "user", "content": [results[1]]}),
            event(
                {
                    "role": "assistant",
                    "id": "o",
                    "content": [{"type": "text", "text": "Done."}],
                }
            ),
        ]
    )
    expected = [
        ("human", "Hi"),
        ("ai", "I look."),
        ("tool", "r1"),
        ("tool", "r2"),
        ("ai", "Done."),
    ]
    found, faults = threads(path)
    assert found == {"s1": expected, "s1 a7": [("human", "Hi"), ("ai", "Hello")]}
    assert faults == [
        f"{path}: left out 2 lines that are no messages, of the types summary, system"
    ]
    ours = next(one for one in read(path)[0] if one.name == "s1")
    assert [call["id"] for call in ours.messages[1].tool_calls] == ["c1", "c2"]


def part(kind, **fields):
    return {"type": kind, **fields}


DONE = {
    "toolCallId": "c1",
    "input": {"invoice": "INV-1"},
    "state": "output-available",
    "output": {"is": "paid"},
}
OLD = {
    "toolCallId": "c1",
    "toolName": "find",
    "args": {"invoice": "INV-1"},
    "state": "result",
    "result": {"is": "paid"},
}


@pytest.mark.parametrize(
    "call",
    [
        part("tool-find", **DONE),
        part("dynamic-tool", toolName="find", **DONE),
        part("tool-invocation", toolInvocation=OLD),
    ],
)
def test_parts_of_a_user_interface_are_read_step_by_step(written, call):
    waiting = part("tool-find", toolCallId="c2", input={}, state="input-available")
    failed = part(
        "tool-find",
        toolCallId="c3",
        input={},
        state="output-error",
        errorText="no such one",
    )
    steps = [
        part("step-start"),
        part("text", text="I look."),
        call,
        failed,
        part("step-start"),
    ]
    rows = [
        {
            "role": "user",
            "parts": [
                part("text", text="Hi"),
                part("file", mediaType="image/png", url="data:x"),
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "parts": [*steps, part("data-chart", data=1), part("text", text="Paid.")],
        },
        {"role": "user", "parts": [part("text", text="And?")]},
        {"role": "assistant", "parts": [waiting]},
    ]
    (found,), faults = read(written(rows))
    results = [("tool", '{"is": "paid"}'), ("tool", "no such one")]
    expected = [
        ("human", "Hi"),
        ("ai", "I look."),
        *results,
        ("ai", "Paid."),
        ("human", "And?"),
        ("ai", ""),
    ]
    assert (said(found), faults) == (expected, [])
    assert [found.messages[1].tool_calls[0][key] for key in ("name", "args")] == [
        "find",
        {"invoice": "INV-1"},
    ]
    assert found.messages[3].status == "error"
    assert found.messages[0].content[1]["type"] == "image_url"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            {"role": "user", "body": "Hi"},
            "it says nothing that is understood: it has body",
        ),
        (
            {"role": "user", "content": "", "value": {"a": "Hi"}},
            "it says nothing that is understood: it has value",
        ),
        ({"role": "user"}, "it says nothing that is understood: it has no content"),
        (
            {"role": "user", "content": [{"type": "paragraph", "children": ["Hi"]}]},
            "it says nothing that is understood: it has paragraph",
        ),
        (
            {"role": "user", "parts": [{"type": "gizmo"}]},
            "it has a part 'gizmo', which is not read",
        ),
        ({"role": "user", "parts": [{"text": "Hi"}]}, "it has a part without `type`"),
        (
            {"type": "user", "message": {"body": "Hi"}},
            "it says nothing that is understood: it has body",
        ),
    ],
)
def test_what_is_not_understood_is_no_silence(written, message, why):
    """It is told with file, line and message, and costs its own conversation alone."""
    path = written([{"messages": ROWS}, message, ANSWER])
    found, faults = read(path)
    assert (len(found), faults) == (
        1,
        [f"{path}:2: left out the conversation: message 1: {why}"],
    )


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": ""},
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "timestamp": "2030-01-31",
        },
        {"role": "assistant", "content": "", "reasoning_content": "I think."},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "I think.", "signature": "x"}],
        },
        AIMessage("", response_metadata={"model": "m"}).model_dump(),
        message_to_dict(
            AIMessage(
                "",
                usage_metadata={
                    "input_tokens": 1,
                    "output_tokens": 0,
                    "total_tokens": 1,
                },
            )
        ),
    ],
)
def test_a_message_may_say_nothing(written, message):
    (found,), faults = read(written([{"messages": [USER, message]}]))
    assert (len(found.messages), faults) == (2, [])


@pytest.mark.parametrize("kind", ["line", "file", "messages", "runs"])
def test_what_unpacks_to_more_than_a_conversation_is_told_and_never_held(
    written, monkeypatch, kind
):
    """20 MB out of 80 kB: in one line or file, or in many lines that would be joined."""
    monkeypatch.setattr("langchain_ctxwin.replay.reading.MAX_CHARS", 200_000)
    good, size = (
        json.dumps({"messages": ROWS}),
        20_000_000 if kind in {"line", "file"} else 1_000_000,
    )
    unit = {
        "line": "[],",
        "file": "[],",
        "messages": json.dumps(USER) + "\n",
        "runs": json.dumps(run([user("a")], ai("b"), trace="NUMBER", extra={})) + "\n",
    }[kind]
    units = [unit.replace("NUMBER", str(n)) for n in range(size // len(unit))]
    text = (
        "".join([f"{good}\n", *units, f"\n{good}\n"])
        if kind != "file"
        else f"[{''.join(units)}[]]"
    )
    path = written(
        gzip.compress(text.encode(), 1), "a.json.gz" if kind == "file" else "a.jsonl.gz"
    )
    del text, units
    tracemalloc.start()
    try:
        found, faults = [], []
        for one in read_conversations([path], tell=faults.append):
            found.append(one.name) if one.tools == () and len(one.messages) == len(
                ROWS
            ) else None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == (0 if kind == "file" else 2)
    assert any(
        "200,000 characters" in fault and isinstance(fault, LeftOut) for fault in faults
    )
    assert peak < 12_000_000


@pytest.mark.parametrize("form", ["openai", "flat", "dict"])
def test_arguments_that_are_no_json_become_an_invalid_call(written, form):
    broken = calling("c1", "c2", arguments='{"invoice": ')
    broken["tool_calls"][1]["function"]["arguments"] = '{"invoice": "INV-2"}'
    if form != "openai":
        invalid = {
            "name": "find",
            "args": '{"invoice": ',
            "id": "c1",
            "error": "x",
            "type": "invalid_tool_call",
        }
        valid = {
            "name": "find",
            "args": {"invoice": "INV-2"},
            "id": "c2",
            "type": "tool_call",
        }
        message = AIMessage("", tool_calls=[valid], invalid_tool_calls=[invalid])
        broken = message.model_dump() if form == "flat" else message_to_dict(message)
    (found,), faults = read(
        written([{"messages": [USER, broken, result("c2"), result("c1"), ANSWER]}])
    )
    (invalid,) = found.messages[1].invalid_tool_calls
    assert (invalid["name"], invalid["args"], invalid["id"]) == (
        "find",
        '{"invoice": ',
        "c1",
    )
    assert [call["args"] for call in found.messages[1].tool_calls] == [
        {"invoice": "INV-2"}
    ]
    assert (said(found)[2:], faults) == (
        [("tool", "of c2"), ("tool", "of c1"), ("ai", "Hello")],
        [],
    )
    assert request_faults(found.messages) == []


@pytest.mark.parametrize(
    ("messages", "kept", "fault"),
    [
        (
            [USER, result("a"), calling("a"), result("a")],
            "uat",
            f"left out 1 {ORPHANS}: message 2",
        ),
        (
            [USER, result("b"), ANSWER, result("c")],
            "ua",
            f"left out 2 {ORPHANS}: message 2, 4",
        ),
        (
            [USER, calling("a"), result("a"), result("a"), ANSWER],
            "uata",
            f"left out 1 {ORPHANS}: message 4",
        ),
        (
            [USER, calling("a", "b"), result("b"), ANSWER],
            "uata",
            "1 calls without a result: message 2",
        ),
        (
            [USER, calling("a", "a"), result("a"), result("a"), ANSWER],
            "uatta",
            "calls of one message have the same id: message 2",
        ),
        ([USER, calling("a", "b"), result("b"), result("a"), ANSWER], "uatta", None),
        (
            [USER, calling("a"), result("a"), calling("a"), result("a"), ANSWER],
            "uatata",
            None,
        ),
        ([USER, calling("a"), USER, result("a"), ANSWER], "uauta", None),
        ([USER, calling("a", "b"), result("a")], "uat", None),
    ],
)
def test_results_and_calls_that_do_not_pair_are_told(written, messages, kept, fault):
    path = written([{"messages": messages}])
    (found,), faults = read(path)
    letters = {"human": "u", "ai": "a", "tool": "t"}
    assert "".join(letters[message.type] for message in found.messages) == kept
    assert faults == ([f"{path}:1: {fault}"] if fault else [])


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "bot", "content": "x"}, "unknown role 'bot'"),
        ({"content": "x"}, "it has no `role`"),
        (
            {"role": "user", "content": {"a": 1}},
            "its content is dict, neither text nor a list",
        ),
        (
            {"role": "tool", "content": "x"},
            "it is a tool result without `tool_call_id`",
        ),
        (
            {"role": "assistant", "tool_calls": "x"},
            "its tool_calls are str, not a list",
        ),
        ({"role": "assistant", "tool_calls": [7]}, "a tool call is int, not an object"),
        (
            {"type": "ai", "data": {"content": 5}},
            "content.str: Input should be a valid string",
        ),
        (
            {"type": "remove", "data": {"id": "x"}},
            "RemoveMessage is no message of a conversation",
        ),
        (
            {"lc": 1, "type": "secret", "id": ["HOME"]},
            "NoneType is no message of a conversation",
        ),
        (None, "a message is NoneType, not an object"),
    ],
)
def test_a_message_that_cannot_be_read_is_told_with_file_line_and_number(
    written, message, why
):
    path = written([{"messages": ROWS}, {"messages": [USER, ANSWER, message]}])
    found, faults = read(path)
    assert (len(found), faults) == (
        1,
        [f"{path}:2: left out the conversation: message 3: {why}"],
    )
    path = written(json.dumps([USER, message]), "a.json")
    assert read(path) == ([], [f"{path}: left out the conversation: message 2: {why}"])
    if isinstance(message, dict) and {"role", "type"} & message.keys():
        path = written([USER, ANSWER, message])
        assert read(path) == (
            [],
            [f"{path}:3: left out the conversation: message 3: {why}"],
        )
    path = written(json.dumps([{"messages": ROWS}, {"messages": [message]}]), "a.json")
    assert read(path)[1] == [
        f"{path}: item 2: left out the conversation: message 1: {why}"
    ]


def test_tools_that_are_none_are_told(written):
    path = written([{"messages": ROWS, "tools": [{"name": "find"}, None, 7]}])
    (found,), faults = read(path)
    assert (found.tools, faults) == (
        ({"name": "find"},),
        [f"{path}:1: left out 2 tools that are no objects"],
    )


def test_conversations_with_one_name_are_numbered(written):
    rows = [
        {"id": name, "messages": [USER, ANSWER]}
        for name in ("a", "a", "a (2)", "a", "b", 0)
    ]
    first, second = written(rows), written([USER, ANSWER], "more/runs.jsonl")
    found, faults = read(first, second, second)
    names = [
        "a",
        "a (2)",
        "a (2) (2)",
        "a (3)",
        "b",
        "0",
        "runs.jsonl",
        "runs.jsonl (2)",
    ]
    assert ([one.name for one in found], faults) == (names, [])
    assert len({message.id for one in found for message in one.messages}) == 2 * len(
        found
    )


def test_what_a_user_names_is_required_and_what_a_folder_holds_is_told(
    written, tmp_path
):
    written([{"messages": ROWS}], "some/a.jsonl")
    strange, foreign = written("x", "some/b.csv"), tmp_path / "some" / "c.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE notes (text)")
    (tmp_path / "some" / "d.jsonl").symlink_to(tmp_path / "gone")
    found, faults = read(tmp_path / "some")
    assert len(found) == 1
    assert faults == [
        f"{tmp_path / 'some'}: left out 2 files of other kinds, such as b.csv",
        f"{foreign} cannot be read as a database of LangGraph's SQLite saver: no such table: checkpoints",
    ]
    (tmp_path / "empty").mkdir()
    for path, why in [
        (strange, "recorded conversations are SQLite databases, or end in .jsonl"),
        (foreign, "no such table: checkpoints"),
        (tmp_path / "gone.jsonl", "does not exist"),
        (tmp_path / "empty", "holds no SQLite database, and no file that ends in"),
    ]:
        with pytest.raises(ConfigError, match=why):
            read(path)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:secret@db.local:5432/runs", "postgresql://***"),
        *(
            (path, None)
            for path in ("runs/a.jsonl", "C:/runs", "C:\\runs", "a:b.jsonl", "/runs")
        ),
    ],
)
def test_an_address_is_shown_without_what_is_secret_and_a_path_is_none(address, shown):
    assert is_address(address) is (shown is not None)
    if shown:
        assert shown_address(address) == shown


def run(messages, answer=None, *, trace="t", start="", **more):
    """One run of the thread T, as an export of LangSmith has it."""
    about = {
        "id": trace,
        "trace_id": trace,
        "run_type": "chain",
        "inputs": {"messages": messages},
        "outputs": {},
    }
    about |= {"outputs": {"messages": [*messages, answer]}} if answer else {}
    return {
        **about,
        "start_time": start,
        "extra": {"metadata": {"thread_id": "T"}},
        **more,
    }


def user(text):
    return {"role": "user", "content": text}


def ai(text):
    return {"role": "assistant", "content": text}


def threads(path):
    """The texts of each conversation by its name, and what is told."""
    found, faults = read(path)
    return {one.name: said(one) for one in found}, faults


SYSTEM = {"role": "system", "content": "Be brief."}
WHOLE = [("human", "a"), ("ai", "b"), ("human", "c"), ("ai", "d")]
TURN = run([user("a")], ai("b"))
FIRST, ALONE = (
    run([user("a")], ai("b"), trace="1", start="1"),
    run([user("c")], ai("d"), trace="2", start="2"),
)
TOOLS = {
    "extra": {
        "metadata": {"thread_id": "T"},
        "invocation_params": {"tools": [{"name": "find"}]},
    }
}
PART = {
    **run([]),
    "id": "other",
    "inputs": {"input": "x"},
    "outputs": {"output": "__end__"},
}
SPLIT = [
    {**run([user("a")], trace="2", start="2"), "id": "part"},
    FIRST,
    run([user("a")], ai("d"), trace="2", start="2"),
]
UNUSED = ["left out 1 runs that hold no messages"]
ODD_RUNS = [{**TURN, "run_type": odd, "runs": odd} for odd in ([], {}, None, 7)]


@pytest.mark.parametrize(
    ("runs", "expected", "faults"),
    [
        ([TURN], WHOLE[:2], []),
        # turns that are traces of their own are joined in time
        *[(runs, WHOLE, []) for runs in ([FIRST, ALONE], [ALONE, FIRST])],
        # the system prompt, or the end of the turn before, is repeated
        (
            [
                run([SYSTEM, user("a")], ai("b"), start="1"),
                run([SYSTEM, ai("b"), user("c")], ai("d"), trace="2", start="2"),
            ],
            [SAID[0], *WHOLE],
            [],
        ),
        # a part of a trace that hands on a text is no conversation
        ([TURN, PART], WHOLE[:2], UNUSED),
        # a request of the second turn alone looks like the beginning of the first one
        (SPLIT, [*WHOLE[:2], ("human", "a"), ("ai", "d")], []),
        # what a run adds follows what it was given
        ([{**run([user("a")]), "outputs": {"messages": [ai("b")]}}], WHOLE[:2], []),
        (
            [
                {
                    **run([user("a"), ai("b"), user("c")]),
                    "outputs": {"messages": [ai("d")]},
                }
            ],
            WHOLE,
            [],
        ),
        # as Anthropic's requests have the system prompt
        (
            [
                {
                    **TURN,
                    "inputs": {"messages": [user("a")], "system": "Be brief."},
                    "outputs": ai("b"),
                }
            ],
            [SAID[0], *WHOLE[:2]],
            [],
        ),
        *[([row], WHOLE[:2], []) for row in ODD_RUNS],
        # what is no run among runs is told
        *[
            ({"runs": [TURN, row]}, WHOLE[:2], UNUSED)
            for row in ({"x": 1}, None, "a text", {"run_type": "llm"})
        ],
        *[(packed, WHOLE[:2], []) for packed in ({"runs": [TURN]}, TURN)],
    ],
)
def test_the_runs_of_a_thread_are_one_conversation(written, runs, expected, faults):
    """In lines of their own or in one file, whatever a run holds of the conversation."""
    told = written(json.dumps(runs), "runs.json")
    assert threads(told) == ({"T": expected}, [f"{told}: {fault}" for fault in faults])
    if isinstance(runs, list):
        told = written(runs)
        assert threads(told) == (
            {"T": expected},
            [f"{told}: {fault}" for fault in faults],
        )


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_trace_that_holds_the_one_before_replaces_it(written, is_reversed):
    """Its tools are those of the other where it has none."""
    runs = [
        {**FIRST, **TOOLS},
        run([user("a"), ai("b"), user("c")], ai("d"), trace="2", start="2"),
    ]
    (found,), faults = read(written(runs[::-1] if is_reversed else runs))
    assert (said(found), found.tools, faults) == (WHOLE, ({"name": "find"},), [])


def test_a_thread_without_a_name_is_that_of_its_trace_and_tools_are_no_part_of_it(
    written,
):
    """A run of a tool is not told either: it never holds messages."""
    rows = [
        {**run([user("a")], ai("b"), trace="x"), "extra": {}},
        {"run_type": "tool", "inputs": {}, "outputs": None},
    ]
    assert threads(written(rows)) == ({"x": WHOLE[:2]}, [])


LISTS = [["a"], "a", [["human", "a"]], [[user("a")]], user("a")]
TEXTS = [{"input": "a"}, {"question": "a"}]
ANSWERS = [{"output": ai("b")}, ai("b"), {"choices": [{"message": ai("b")}]}]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    # a text beside messages may be anything, such as the name of the next node
    [
        *product([*({"messages": one} for one in LISTS), [user("a")], *TEXTS], ANSWERS),
        *product(TEXTS, [{"output": "b"}, "b"]),
    ],
)
def test_inputs_and_outputs_in_every_form_are_read(written, inputs, outputs):
    """As graphs, chains and models of several libraries have them."""
    assert threads(written([{**run([]), "inputs": inputs, "outputs": outputs}])) == (
        {"T": WHOLE[:2]},
        [],
    )


@given(st.permutations(range(6)))
def test_the_order_of_an_export_does_not_matter(tmp_path_factory, order):
    """Histories that grow and turns of their own are joined in time."""
    runs = [
        run(
            [user(f"q{n}") for n in range(turn)],
            ai(f"a{turn}"),
            trace=f"{turn}",
            start=f"{turn}",
        )
        for turn in range(1, 4)
    ]
    runs += [
        run([user(f"own{n}")], ai(f"b{n}"), trace=f"o{n}", start=f"9{n}")
        for n in range(3)
    ]
    path = tmp_path_factory.mktemp("order") / "runs.jsonl"
    path.write_text(lines(runs))
    straight = threads(path)
    path.write_text(lines([runs[index] for index in order]))
    assert threads(path) == straight


NAMES = [
    "id",
    "role",
    "type",
    "content",
    "messages",
    "tool_calls",
    "tools",
    "run_type",
    "inputs",
    "outputs",
    "lc",
]
NAMES += [
    "data",
    "runs",
    "extra",
    "metadata",
    "system",
    "generations",
    "function",
    "name",
    "args",
    "tool_call_id",
]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)
"""Objects with the names of recordings, and anything in them."""


def places(value, at=()):
    """The ways to everything in an object."""
    yield at
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inside:
        yield from places(one, (*at, key))


def replaced(value, at, new):
    """The object with something else at a place."""
    if not at:
        return new
    copied = value.copy()
    copied[at[0]] = replaced(value[at[0]], at[1:], new)
    return copied


USED = {"type": "tool_use", "id": "c", "name": "find", "input": {}}
GOOD = [
    {
        "id": "a",
        "messages": [user("a"), calling("c"), result("c"), ai("b")],
        "tools": [{"name": "find"}],
    },
    {
        "messages": [
            {"type": "human", "data": {"content": "a"}},
            {"type": "ai", "data": {"content": "b"}},
        ]
    },
    {
        "system": "s",
        "messages": [
            user("a"),
            ai([USED]),
            user([{"type": "tool_result", "tool_use_id": "c"}]),
            ai("b"),
        ],
    },
    run([user("a")], outputs={"generations": [[{"message": ai("b")}]]}),
    {"runs": [TURN]},
]


@st.composite
def spoiled(draw):
    """A good recording with anything in some of its places."""
    row = draw(st.sampled_from(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        row = replaced(row, draw(st.sampled_from([*places(row)])), draw(ODD))
    return row


@given(
    st.lists(ODD, min_size=1, max_size=4).map(lambda rows: lines(rows).encode())
    | spoiled().map(lambda row: json.dumps(row).encode())
    | st.binary(max_size=300),
    st.sampled_from(["a.jsonl", "a.json", "a.jsonl.gz", "packed.jsonl.gz"]),
)
@settings(max_examples=250)
def test_whatever_a_file_holds_is_read_or_told(tmp_path_factory, content, name):
    """No recording, whoever wrote it, ends the reading of a folder."""
    path = tmp_path_factory.mktemp("odd") / name
    path.write_bytes(gzip.compress(content) if name.startswith("packed") else content)
    found, faults = read(path)
    assert found or faults
