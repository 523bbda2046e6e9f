"""Are the runs of an export joined to the conversations that they were part of?"""

import json
from itertools import count, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import ConfigError
from langchain_ctxwin.replay import read_conversations
from langchain_ctxwin.replay.reading import Traces

IDS = count()


def run(messages, answer=None, *, trace="t", thread="T", start="", **more):
    """One run of a thread, as an export has it."""
    return {
        "id": trace,
        "trace_id": trace,
        "run_type": "chain",
        "inputs": {"messages": messages},
        "outputs": {"messages": [*messages, answer]} if answer else {},
        "start_time": start,
        "extra": {"metadata": {"thread_id": thread}},
        **more,
    }


def user(text):
    return {"role": "user", "content": text}


def ai(text):
    return {"role": "assistant", "content": text}


def read(path, content):
    faults = []
    path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, content)))
    found = read_conversations([path], tell=faults.append)
    return {one.name: [(m.type, m.text) for m in one.messages] for one in found}, faults


WHOLE = [("human", "a"), ("ai", "b"), ("human", "c"), ("ai", "d")]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_turns_that_are_traces_of_their_own_are_joined_in_time(tmp_path, is_reversed):
    runs = [
        run([user("a")], ai("b"), trace="1", start="2026-01-01T10:00:00"),
        run([user("c")], ai("d"), trace="2", start="2026-01-01T10:01:00"),
    ]
    found, faults = read(tmp_path / "runs.jsonl", runs[::-1] if is_reversed else runs)
    assert (found, faults) == ({"T": WHOLE}, [])


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_trace_that_holds_the_one_before_replaces_it(tmp_path, is_reversed):
    tools = {"extra": {"metadata": {"thread_id": "T"}, "invocation_params": {"tools": [{"name": "find"}]}}}
    runs = [
        run([user("a")], ai("b"), trace="1", start="1", **tools),
        run([user("a"), ai("b"), user("c")], ai("d"), trace="2", start="2"),
    ]
    path = tmp_path / "runs.jsonl"
    found, faults = read(path, runs[::-1] if is_reversed else runs)
    assert (found, faults) == ({"T": WHOLE}, [])
    (conversation,) = read_conversations([path])
    assert conversation.tools == ({"name": "find"},)


def test_turns_that_repeat_the_system_prompt_or_the_end_of_the_last_one_are_joined_once(tmp_path):
    system = {"role": "system", "content": "Be brief."}
    runs = [
        run([system, user("a")], ai("b"), trace="1", start="1"),
        run([system, ai("b"), user("c")], ai("d"), trace="2", start="2"),
    ]
    assert read(tmp_path / "runs.jsonl", runs)[0] == {"T": [("system", "Be brief."), *WHOLE]}


MESSAGES = [
    {"messages": ["a"]},
    {"messages": "a"},
    {"messages": [["human", "a"]]},
    {"messages": [[user("a")]]},
    {"messages": user("a")},
    [user("a")],
]
TEXTS = [{"input": "a"}, {"question": "a"}]
ANSWERS = [{"output": ai("b")}, ai("b"), {"choices": [{"message": ai("b")}]}]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    # a text beside messages may be anything, such as the name of the next node
    [*product([*MESSAGES, *TEXTS], ANSWERS), *product(TEXTS, [{"output": "b"}, "b"])],
)
def test_inputs_and_outputs_in_every_form_are_read(tmp_path, inputs, outputs):
    row = {**run([]), "inputs": inputs, "outputs": outputs}
    assert read(tmp_path / "runs.jsonl", [row]) == ({"T": WHOLE[:2]}, [])


def test_a_part_of_a_trace_that_hands_on_a_text_is_no_conversation(tmp_path):
    part = {**run([]), "id": "other", "inputs": {"input": "x"}, "outputs": {"output": "__end__"}}
    whole = run([user("a")], ai("b"))
    found, faults = read(tmp_path / "runs.jsonl", [whole, part])
    assert found == {"T": WHOLE[:2]}
    assert faults == [f"{tmp_path / 'runs.jsonl'}: left out 1 runs that hold no messages"]


def test_a_thread_without_a_name_is_that_of_its_trace_and_tools_are_no_part_of_it(tmp_path):
    rows = [{**run([user("a")], ai("b"), trace="x"), "extra": {}}, {"run_type": "tool", "inputs": {}, "outputs": None}]
    assert read(tmp_path / "runs.jsonl", rows) == ({"x": WHOLE[:2]}, [])


@pytest.mark.parametrize("start", [[], [user("0"), ai("1")]])
def test_what_a_run_adds_follows_what_it_was_given(tmp_path, start):
    row = {**run([*start, user("a")]), "outputs": {"messages": [ai("b")]}}
    assert read(tmp_path / "runs.jsonl", [row]) == ({"T": [("human", "0"), ("ai", "1")][: len(start)] + WHOLE[:2]}, [])


@pytest.mark.parametrize("row", [{"x": 1}, None, "a text", {"run_type": "llm"}])
def test_what_is_no_run_among_runs_is_told(tmp_path, row):
    path = tmp_path / "runs.json"
    found, faults = read(path, json.dumps({"runs": [run([user("a")], ai("b")), row]}))
    assert (found, faults) == ({"T": WHOLE[:2]}, [f"{path}: left out 1 runs that hold no messages"])


@pytest.mark.parametrize("odd", [[], {}, None, 7])
def test_a_run_whose_kind_is_none_is_read(tmp_path, odd):
    row = {**run([user("a")], ai("b")), "run_type": odd, "runs": odd}
    assert read(tmp_path / "runs.jsonl", [row]) == ({"T": WHOLE[:2]}, [])


def test_turns_keep_their_order_when_parts_of_a_later_one_come_first(tmp_path):
    """A request of the second turn alone looks like the beginning of the first one."""
    part = {**run([user("a")], trace="2", start="2"), "id": "part"}
    whole = run([user("a")], ai("d"), trace="2", start="2")
    rows = [part, run([user("a")], ai("b"), trace="1", start="1"), whole]
    assert read(tmp_path / "runs.jsonl", rows)[0] == {"T": [*WHOLE[:2], ("human", "a"), ("ai", "d")]}


def test_the_system_prompt_of_anthropics_requests_is_kept(tmp_path):
    row = run([user("a")])
    row["inputs"]["system"] = "Be brief."
    row["outputs"] = ai("b")
    assert read(tmp_path / "runs.jsonl", [row])[0] == {"T": [("system", "Be brief."), *WHOLE[:2]]}


@pytest.mark.parametrize("packed", [lambda run: {"runs": [run]}, lambda run: [run], lambda run: run])
def test_a_file_may_hold_one_run_or_several(tmp_path, packed):
    found, faults = read(tmp_path / "runs.json", json.dumps(packed(run([user("a")], ai("b")))))
    assert (found, faults) == ({"T": WHOLE[:2]}, [])


@given(st.permutations(range(6)))
def test_the_order_of_an_export_does_not_matter(order):
    runs = [
        run([user(f"q{n}") for n in range(turn)], ai(f"a{turn}"), trace=f"{turn}", start=f"{turn}")
        for turn in range(1, 4)
    ]
    runs += [run([user(f"own{n}")], ai(f"b{n}"), trace=f"o{n}", start=f"9{n}") for n in range(3)]
    joined, straight = Traces(), Traces()
    for index in order:
        joined.take(runs[index])
    for one in runs:
        straight.take(one)
    assert list(joined.rows()) == list(straight.rows())


NAMES = ["id", "role", "type", "content", "messages", "tool_calls", "tools", "run_type", "inputs", "outputs", "lc"]
NAMES += ["data", "runs", "extra", "metadata", "system", "generations", "function", "name", "args", "tool_call_id"]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
"""Objects with the names of recordings, and anything in them."""


def places(value, at=()):
    """The ways to everything in an object."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*at, key))


def replaced(value, at, new):
    """The object with something else at a place."""
    if not at:
        return new
    copied = value.copy()
    copied[at[0]] = replaced(value[at[0]], at[1:], new)
    return copied


CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
ANSWERED = [{**ai(None), "tool_calls": [CALL]}, {"role": "tool", "content": "x", "tool_call_id": "c"}, ai("b")]
USED = {"type": "tool_use", "id": "c", "name": "find", "input": {}}
GOOD = [
    {"id": "a", "messages": [user("a"), *ANSWERED], "tools": [{"name": "find"}]},
    {"messages": [{"type": "human", "data": {"content": "a"}}, {"type": "ai", "data": {"content": "b"}}]},
    {"system": "s", "messages": [user("a"), ai([USED]), user([{"type": "tool_result", "tool_use_id": "c"}]), ai("b")]},
    run([user("a")], ai("b"), outputs={"generations": [[{"message": ai("b")}]]}),
    {"runs": [run([user("a")], ai("b"))]},
]


@given(st.data())
def test_a_recording_with_anything_anywhere_is_read_or_told(tmp_path_factory, data):
    row = data.draw(st.sampled_from(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        row = replaced(row, data.draw(st.sampled_from([*places(row)])), data.draw(ODD))
    name = data.draw(st.sampled_from(["a.jsonl", "a.json"]))
    found, faults = read(tmp_path_factory.mktemp("odd") / name, json.dumps(row))
    assert found or faults


@given(st.lists(ODD, min_size=1, max_size=4))
def test_whatever_a_file_holds_is_read_or_told(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("odd") / f"{next(IDS)}.jsonl"
    found, faults = read(path, rows)
    assert found or faults


@given(st.binary(max_size=300), st.sampled_from(["a.jsonl", "a.json", "a.jsonl.gz"]))
def test_whatever_bytes_a_file_has_are_read_or_told(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(content)
    faults = []
    try:
        found = list(read_conversations([path], tell=faults.append))
    except ConfigError:
        return
    assert found or faults
