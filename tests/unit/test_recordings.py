"""Are recorded conversations read whatever wrote them, and is what cannot be read told with its place?"""

import gzip
import json
import sqlite3

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
    message_to_dict,
)

from langchain_ctxwin import ConfigError
from langchain_ctxwin.replay import read_conversations
from langchain_ctxwin.replay.playing import needed_values
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


def test_what_is_no_conversation_is_told_with_its_line(written):
    good = json.dumps({"messages": ROWS})
    rows = [
        good,
        "{broken",
        '"a text"',
        '{"messages": []}',
        json.dumps({"messages": [USER]}),
        json.dumps({"run_type": "chain", "inputs": {"messages": [USER, ANSWER]}}),
        "",
        good[:90],
    ]
    found, faults = read(written("\n".join(rows).encode() + b"\xff\xfe"))
    assert [len(one.messages) for one in found] == [5]
    assert [fault.split(":")[1] for fault in faults] == ["2", "3", "4", "5", "6", "8"]
    assert "no JSON" in read(written("[", "cut.json"))[1][0]


def test_a_damaged_archive_gives_what_comes_before_the_damage(written):
    text = "\n".join(
        json.dumps({"id": str(n), "messages": [USER, ANSWER], "x": f"{n * 7919}" * 20})
        for n in range(2000)
    )
    path = written(gzip.compress(text.encode())[:-5000], "a.jsonl.gz")
    found, faults = read(path)
    assert 400 < len(found) < 2000
    assert [one.name for one in found] == [str(n) for n in range(len(found))]
    assert faults[-1].startswith(f"{path}: left out the rest: broken off (")


BOTH_CALLS = AIMessage(
    "",
    tool_calls=[{"name": "find", "args": {"invoice": "INV-2"}, "id": "c2"}],
    invalid_tool_calls=[
        {"name": "find", "args": '{"invoice": ', "id": "c1", "error": "x"}
    ],
)
OPENAI_CALLS = calling("c1", "c2", arguments='{"invoice": ')
OPENAI_CALLS["tool_calls"][1]["function"]["arguments"] = '{"invoice": "INV-2"}'


@pytest.mark.parametrize(
    "calls",
    [
        OPENAI_CALLS,
        BOTH_CALLS.model_dump(),
        message_to_dict(BOTH_CALLS),
        dumpd(BOTH_CALLS),
    ],
)
def test_arguments_that_are_no_json_become_an_invalid_call(written, calls):
    """In OpenAI's form, and in the three of LangChain."""
    rows = [{"messages": [USER, calls, result("c2"), result("c1"), ANSWER]}]
    (found,), faults = read(written(rows))
    said_calls = found.messages[1]
    (invalid,) = said_calls.invalid_tool_calls
    assert (invalid["args"], invalid["id"]) == ('{"invoice": ', "c1")
    assert [call["args"] for call in said_calls.tool_calls] == [{"invoice": "INV-2"}]
    assert (faults, request_faults(found.messages)) == ([], [])


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "bot", "content": "x"}, "unknown role 'bot'"),
        ({"role": "user", "content": {"a": 1}}, "its content is dict"),
        (
            {"type": "user", "sessionId": "s1", "message": USER},
            "it says nothing that is understood: it has message, sessionId",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
            "it has tool_result",
        ),
        ({"type": "ai", "data": {"content": 5}}, "its content is int"),
        ({"lc": 1, "type": "secret", "id": ["HOME"]}, "unknown role 'secret'"),
        (7, "a message is int, not an object"),
    ],
)
def test_a_message_that_cannot_be_read_is_told_with_file_line_and_number(
    written, message, why
):
    """It costs its own conversation alone."""
    path = written([{"messages": ROWS}, {"messages": [USER, ANSWER, message]}])
    found, (fault,) = read(path)
    assert len(found) == 1
    assert fault.startswith(f"{path}:2: left out the conversation: message 3: ")
    assert why in fault
    whole = json.dumps({"messages": [message]})
    (fault,) = read(path := written(whole, "a.json"))[1]
    assert fault.startswith(f"{path}: left out the conversation: message 1: ")
    if isinstance(message, dict) and {"role", "sessionId"} & message.keys():
        (fault,) = read(path := written([USER, ANSWER, message]))[1]
        assert f"message 3 ({path}:3): " in fault


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


def test_what_a_user_names_has_to_be_there_and_what_cannot_be_read_is_told(
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
        f"{foreign} cannot be read as a database of LangGraph's SQLite saver: no such table: checkpoints"
    ]
    assert read(foreign) == ([], faults)
    (tmp_path / "empty").mkdir()
    for path, why in [
        (strange, "holds none: recorded conversations are SQLite databases, or end"),
        (tmp_path / "gone.jsonl", "does not exist"),
        (tmp_path / "empty", "holds none"),
    ]:
        with pytest.raises(ConfigError, match=why):
            read(path)
