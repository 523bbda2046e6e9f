"""Is what a provider made for itself left to it, and shown to others as far as they can use it?"""

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin import ContextConfig, ContextEngine, ModelInfo, ModelLimits
from langchain_ctxwin.core.native import COMPACTED_TEXT, UNREADABLE_TEXT, compaction_in, readable
from langchain_ctxwin.core.outcome import seen
from langchain_ctxwin.observe import StepEvent
from support.oracle import pairing_problem

LIMITS = ModelLimits(context_window=8_000, max_output_tokens=1_000)
PROVIDERS = ("anthropic", "openai", "gemini")
MODELS = {
    "anthropic": ChatAnthropic(model="claude", api_key="none"),
    "openai": ChatOpenAI(model="gpt", api_key="none", use_responses_api=True),
    "gemini": ChatGoogleGenerativeAI(model="gemini", api_key="none"),
    "other": ChatOpenAI(model="llama", api_key="none", base_url="http://127.0.0.1:9/v1"),
}
SUMMARY = {"type": "compaction", "content": "Ann flies on Monday."}
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FBQUFB" * 20}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEARCH = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "trains"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [{"url": "https://a.example", "title": "Trains"}],
    },
]
TEXT = {"type": "text", "text": "I look."}
CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}


def made(*blocks, by="anthropic", name="made", calls=()):
    return AIMessage(list(blocks), id=name, tool_calls=list(calls), response_metadata={"model_provider": by})


def chat(turns=60, words=60):
    """A conversation that is larger than the window."""
    history = [HumanMessage("Always answer in French.", id="rule")]
    for n in range(turns):
        history += [
            HumanMessage(f"question {n} " + "word " * words, id=f"q{n}"),
            AIMessage(f"answer {n} " + "w " * words),
        ]
    return history


def compacted(block=SUMMARY, by="anthropic"):
    """One in which the provider compacted in the midst of the last turn."""
    call = {"name": "look", "args": {"a": 1}, "id": "c1"}
    answer = made(block, THOUGHT, TEXT, CALL, by=by, calls=[call])
    return [*chat(), HumanMessage("Go on.", id="now"), answer, ToolMessage("found", tool_call_id="c1", id="result")]


def engine(**config):
    return ContextEngine(limits=LIMITS, config=ContextConfig(**config))


def contents(request):
    return [message.content for message in request]


@pytest.mark.parametrize("called", [None, "anthropic"])
def test_the_request_begins_at_the_newest_compaction_that_its_provider_reads(called):
    """What is before it is not counted, no summary is made of it; rule, question and record stand behind the block."""
    history, ours = compacted(), engine()
    window = ours.measure(history, called=MODELS.get(called))
    assert window.over_by == 0
    assert window.total_tokens < 2_000
    assert ours.plan(window) is None
    request = ours.build(window)
    first = next(message for message in request if isinstance(message, AIMessage))
    assert first is history[-2]
    behind = [message.text for message in request[request.index(first) :]]
    assert "Always answer in French." in behind
    assert "Go on." in behind
    assert 0 < window.session.view.record.messages < len(history)
    assert window.report["compactions"] == 1


def test_a_view_that_the_provider_began_stays():
    """Each request extends the one before, and the block stays when our own compaction drops the rest of its step."""
    ours, history = engine(), compacted()
    window = ours.measure(history, called=MODELS["anthropic"])
    state, before = seen(window), ours.build(window)
    history = [*history, AIMessage("Voilà.", id="done"), HumanMessage("Next?", id="next")]
    window = ours.measure(history, called=MODELS["anthropic"], session=state)
    assert ours.build(window)[: len(before)] == before
    assert window.report["compactions"] == 1
    history += [
        message for n in range(40) for message in (AIMessage("w " * 200, id=f"l{n}"), HumanMessage(f"more {n}"))
    ]
    window = ours.measure(history, called=MODELS["anthropic"], session=seen(window))
    state = seen(window) | ours.apply(ours.emergency(window), window)
    window = ours.measure(history, called=MODELS["anthropic"], session=state)
    request = ours.build(window)
    first = next(message for message in request if isinstance(message, AIMessage))
    assert (window.over_by, first.content, first.tool_calls) == (0, [SUMMARY], [])
    assert pairing_problem(request) is None


@pytest.mark.parametrize("called", ["gemini", "openai", "other"])
def test_another_provider_gets_the_text_of_a_compaction(called):
    ours, history = engine(), compacted()
    state = seen(ours.measure(history, called=MODELS["anthropic"]))
    request = ours.build(ours.measure(history, called=MODELS[called], session=state))
    shown = next(message for message in request if message.id == "made")
    assert shown.content == [{"type": "text", "text": f"{COMPACTED_TEXT}\nAnn flies on Monday."}, TEXT]
    assert shown.tool_calls == history[-2].tool_calls


@pytest.mark.parametrize("called", ["gemini", "anthropic", "other"])
def test_the_whole_history_counts_again_when_nobody_can_read_a_compaction(called):
    ours, history = engine(), compacted(SEALED, by="openai")
    window = ours.measure(history, called=MODELS["openai"])
    assert window.over_by == 0
    assert SEALED in ours.build(window)[0].content
    other = ours.measure(history, called=MODELS[called], session=seen(window))
    assert other.priced_view.start == 0
    assert other.over_by > 0  # and our own compaction follows
    assert "cannot read" in other.session.faults[0]
    assert UNREADABLE_TEXT in str(contents(ours.build(other)))
    back = ours.measure(history, called=MODELS["openai"], session=seen(other))
    assert back.over_by == 0
    assert ours.build(back) == ours.build(window)


@pytest.mark.parametrize(
    "block", [{"type": "compaction", "content": None}, {"type": "compaction"}, {"type": "compaction", "content": 3}]
)
def test_a_compaction_that_failed_changes_nothing(block):
    assert compaction_in(made(block)) is None
    history = compacted(block)
    assert engine().measure(history, called=MODELS["anthropic"]).over_by > 0


def test_blocks_stay_as_they_are_for_their_maker_whatever_their_type():
    blocks = [
        {"type": "compaction", "content": "x"},
        THOUGHT,
        {"type": "redacted_thinking", "data": "ZQ=="},
        *SEARCH,
        TEXT,
    ]
    message = made(*blocks, {"type": "hologram_of_2031", "payload": {"text": "later"}})
    request = engine().build(
        engine().measure([HumanMessage("Hi"), message, HumanMessage("So?")], called=MODELS["anthropic"])
    )
    assert message in request


def test_another_provider_gets_what_can_be_read():
    message = made(THOUGHT, TEXT, *SEARCH, {"type": "hologram_of_2031", "payload": {"text": "later"}}, CALL)
    shown = readable(message, "gemini").content
    assert [block["type"] for block in shown] == ["text"] * 4
    assert "trains" in shown[1]["text"]
    assert "https://a.example" in shown[2]["text"]
    assert shown[3]["text"] == "[hologram_of_2031]\nlater"


def test_blocks_in_the_standard_wrapper_are_understood():
    message = made({"type": "non_standard", "value": SEALED}, TEXT, by="openai")
    assert compaction_in(message) == SEALED
    assert readable(message, "anthropic").content[0] == {"type": "text", "text": UNREADABLE_TEXT}


BLOCKS = st.sampled_from(
    [SUMMARY, SEALED, THOUGHT, *SEARCH, TEXT, CALL, {"type": "image", "url": "https://a.example/b.png"}, "plain",
     {"type": "new", "a": [1, {"b": "c"}]}, {"type": 7}, {"type": "reasoning", "reasoning": "r"}, {"type": "text"}]
)  # fmt: skip


@given(st.lists(BLOCKS, max_size=8), st.sampled_from(PROVIDERS), st.sampled_from([*PROVIDERS, "other", ""]))
def test_a_message_is_made_readable_once(blocks, by, provider):
    message = made(*blocks, by=by)
    shown = readable(message, provider)
    assert readable(shown, provider).content == shown.content
    assert readable(message, provider).content == shown.content
    if provider in {by, ""}:
        assert shown is message
    texts = Counter(block["text"] for block in blocks if isinstance(block, dict) and "text" in block)
    kept = Counter(block["text"] for block in shown.content if isinstance(block, dict) and block.get("text"))
    assert not texts - kept
    assert message.content == blocks


@given(st.lists(st.sampled_from(["user", "answer", "anthropic", "openai"]), max_size=12), st.sampled_from(PROVIDERS))
def test_a_request_holds_all_that_follows_the_newest_compaction(kinds, provider):
    """Nothing before it is needed, nothing behind it is missing, and the question is there."""
    history = [HumanMessage("Begin.", id="begin")]
    for n, kind in enumerate(kinds):
        made_by = made(
            SUMMARY if kind == "anthropic" else SEALED, {"type": "text", "text": f"t{n}"}, by=kind, name=f"m{n}"
        )
        plain = HumanMessage(f"h{n}", id=f"m{n}") if kind == "user" else AIMessage(f"a{n}", id=f"m{n}")
        history.append(plain if kind in {"user", "answer"} else made_by)
    window = engine().measure(history, called=MODELS[provider])
    request = engine().build(window)
    own = [index for index, message in enumerate(history) if compaction_in(message) and kinds[index - 1] == provider]
    start = own[-1] if own else 0
    ids = [message.id for message in request]
    assert [name for name in ids if name in {m.id for m in history[start:]}] == [m.id for m in history[start:]]
    asked = next(message for message in reversed(history) if isinstance(message, HumanMessage))
    assert asked.id in ids
    if own:
        ai = [message for message in request if isinstance(message, AIMessage)]
        assert ai[0].id == history[start].id
    again = engine().measure(history, called=MODELS[provider], session=seen(window))
    assert engine().build(again) == request


def tool(name, *, deferred):
    extras = {"defer_loading": True} if deferred else None
    return StructuredTool.from_function(
        lambda x: x,
        name=name,
        description="word " * 200,
        extras=extras,
        args_schema={"type": "object", "properties": {"x": {"type": "string"}}},
    )


@pytest.mark.parametrize(
    ("called", "is_counted"), [(None, False), ("anthropic", False), ("gemini", True), ("other", True)]
)
def test_a_deferred_tool_costs_nothing_where_the_prompt_does_not_hold_it(called, is_counted):
    tools = [tool(f"tool{n}", deferred=n > 0) for n in range(100)]
    window = engine().measure([HumanMessage("Hi")], tools=tools, called=MODELS.get(called))
    alone = engine().measure([HumanMessage("Hi")], tools=tools[:1], called=MODELS.get(called))
    assert (window.total_tokens > 10 * alone.total_tokens) is is_counted
    assert is_counted or window.total_tokens == alone.total_tokens


@pytest.mark.parametrize("form", ["own search", "search by the provider"])
def test_a_deferred_tool_counts_where_a_message_loads_it(form):
    tools = [tool(f"tool{n}", deferred=True) for n in range(9)]
    reference = {"type": "tool_reference", "tool_name": "tool3"}
    call = {"name": "search", "args": {}, "id": "c1"}
    if form == "own search":
        found = [made(CALL, calls=[call]), ToolMessage([reference], tool_call_id="c1")]
    else:
        result = {
            "type": "tool_search_tool_result",
            "tool_use_id": "s1",
            "content": {"type": "x", "tool_references": [reference]},
        }
        found = [made({"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}, result)]
    history = [HumanMessage("Hi"), *found]
    loaded = engine().measure(history, tools=tools, called=MODELS["anthropic"])
    without = engine().measure(history, tools=[], called=MODELS["anthropic"])
    definition = engine().measure([HumanMessage("Hi")], tools=[tool("tool3", deferred=False)]).report["tool_tokens"]
    assert 0.4 * definition < loaded.history_tokens - without.history_tokens <= definition
    assert loaded.report["tool_tokens"] == 0


def answered(tokens, cleared=0, **metadata):
    managed = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": cleared}]}
    usage = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}
    metadata = {"model_provider": "anthropic", "context_management": managed, **metadata}
    return AIMessage("Done.", id="done", usage_metadata=usage, response_metadata=metadata)


def test_what_the_provider_cleared_itself_is_added_back():
    """The next request holds it again, so its size is that of what was sent, not of what the model saw."""
    history = [HumanMessage("word " * 4_000, id="q")]
    sent = engine().measure(history, called=MODELS["anthropic"]).total_tokens
    told = [*history, answered(sent - 3_000, cleared=3_000), HumanMessage("Next?")]
    window = engine().measure(told, called=MODELS["anthropic"])
    assert window.report["counted_by"] == "usage"
    assert sent < window.total_tokens < sent + 40
    event = StepEvent.of_answer(answered(sent - 3_000, cleared=3_000), info=None, estimated_tokens=sent)
    assert event.accuracy == 1.0


@pytest.mark.parametrize(
    "managed",
    [
        None,
        [],
        {},
        {"applied_edits": None},
        {"applied_edits": 7},
        {"applied_edits": [None, {"cleared_input_tokens": -4}, {"cleared_input_tokens": "9"}]},
    ],
)
def test_odd_reports_of_edits_add_nothing(managed):
    event = StepEvent.of_answer(answered(100, context_management=managed), info=None, estimated_tokens=100)
    assert event.reported_tokens == 100


def test_a_compaction_by_the_provider_is_paid_for():
    """Anthropic bills it beside the usage of the answer, and states it in its iterations only."""
    info = ModelInfo(
        name="m", provider="anthropic", input_price=Decimal(1), output_price=Decimal(5), cache_read_price=Decimal("0.1")
    )
    rounds = [
        {"type": "compaction", "input_tokens": 1_000, "cache_read_input_tokens": 9_000, "output_tokens": 100},
        {"type": "message", "input_tokens": 200, "output_tokens": 5},
    ]
    plain = StepEvent.of_answer(answered(200), info=info)
    event = StepEvent.of_answer(answered(200, usage={"iterations": rounds}), info=info)
    assert float(event.cost - plain.cost) == pytest.approx((1_000 + 900 + 500) / 1e6)
    assert event.reported_tokens == 200


def test_what_the_memory_tool_returns_is_spared():
    """Notes that a provider's model keeps are told nowhere else; who names the tool to be cleared has decided."""
    memory = {"type": "memory_20250818", "name": "memory"}
    spared = [
        engine(clear_tools=cleared).measure([HumanMessage("Hi")], tools=[memory, tool("look", deferred=False)]).goal
        for cleared in ((), ("memory",))
    ]
    assert [goal.spare_tools for goal in spared] == [{"memory"}, frozenset()]
