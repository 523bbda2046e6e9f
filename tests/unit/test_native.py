"""Is what a provider made for itself left to it, and shown to others as far as they can use it?"""

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin import (
    Compaction,
    ContextConfig,
    ContextEngine,
    ModelInfo,
    ModelLimits,
    Window,
)
from langchain_ctxwin.core.measuring import after_measure, without_reasoning
from langchain_ctxwin.core.plan import show_summary
from langchain_ctxwin.core.provider_blocks import (
    UNREADABLE_TEXT,
    compaction_in,
    readable,
)
from langchain_ctxwin.core.session import Pending, uncovered
from langchain_ctxwin.core.view import Clamp
from langchain_ctxwin.observe import StepEvent
from langchain_ctxwin.testing import request_faults
from langchain_ctxwin.util.work import run
from support.fakes import usage

LIMITS = ModelLimits(context_window=8_000, max_output_tokens=1_000)
PROVIDERS = ("anthropic", "openai", "gemini")
MODELS = {
    "anthropic": ChatAnthropic(model="claude", api_key="none"),
    "openai": ChatOpenAI(model="gpt", api_key="none", use_responses_api=True),
    "gemini": ChatGoogleGenerativeAI(model="gemini", api_key="none"),
    "other": ChatOpenAI(
        model="llama", api_key="none", base_url="http://127.0.0.1:9/v1"
    ),
}
SUMMARY = {"type": "compaction", "content": "Ann flies on Monday."}
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FBQUFB" * 20}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
FOUND = [{"url": "https://a.example", "title": "Trains"}]
SEARCH = [
    {
        "type": "server_tool_use",
        "id": "s1",
        "name": "web_search",
        "input": {"query": "trains"},
    },
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": FOUND},
]
TEXT = {"type": "text", "text": "I look."}
CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}


def made(*blocks, by="anthropic", name="made", calls=()):
    return AIMessage(
        list(blocks),
        id=name,
        tool_calls=list(calls),
        response_metadata={"model_provider": by},
    )


def chat():
    """A conversation that is larger than the window."""
    history = [HumanMessage("Always answer in French.", id="rule")]
    for n in range(60):
        history += [
            HumanMessage(f"question {n} " + "word " * 60, id=f"q{n}"),
            AIMessage(f"answer {n} " + "w " * 60),
        ]
    return history


def compacted(block=SUMMARY, by="anthropic"):
    """One in which the provider compacted in the midst of the last turn."""
    call = {"name": "look", "args": {"a": 1}, "id": "c1"}
    answer = made(block, THOUGHT, TEXT, CALL, by=by, calls=[call])
    return [
        *chat(),
        HumanMessage("Go on.", id="now"),
        answer,
        ToolMessage("found", tool_call_id="c1", id="result"),
    ]


def engine(**config):
    return ContextEngine(limits=LIMITS, config=ContextConfig(**config))


def measured(history, called=None, before=None, tools=()):
    """The request to a provider, after the window `before` or the state of it."""
    session = after_measure(before).to_json() if isinstance(before, Window) else before
    model = MODELS.get(called) if isinstance(called, str) else called
    return engine().measure(history, called=model, session=session, tools=tools)


def sent(history, called=None, before=None):
    return engine().build(measured(history, called, before))


def first_answer(request):
    return next(message for message in request if isinstance(message, AIMessage))


@pytest.mark.parametrize("called", [None, "anthropic"])
def test_the_request_begins_at_the_newest_compaction_that_its_provider_reads(called):
    """What is before it is not counted, no summary is made of it; rule, question and record stand behind the block."""
    history = compacted()
    window = measured(history, called)
    assert (window.over_by, window.total_tokens < 2_500, engine().plan(window)) == (
        0,
        True,
        None,
    )
    request = engine().build(window)
    first = first_answer(request)
    assert first is history[-2]
    assert {"Always answer in French.", "Go on."} <= {
        message.text for message in request[request.index(first) :]
    }
    assert 0 < window.session.view.record.messages < len(history)
    assert window.report["compactions"] == 1


def test_a_view_that_the_provider_began_stays_until_ours_begins_later():
    """Each request extends the one before, and the block leaves with its step when our own compaction drops that."""
    history = compacted()
    window = measured(history, "anthropic")
    before = engine().build(window)
    history = [
        *history,
        AIMessage("Voilà.", id="done"),
        HumanMessage("Next?", id="next"),
    ]
    window = measured(history, "anthropic", window)
    assert engine().build(window)[: len(before)] == before
    assert window.report["compactions"] == 1
    for n in range(40):
        history += [AIMessage("w " * 200, id=f"l{n}"), HumanMessage(f"more {n}")]
    window = measured(history, "anthropic", window)
    window = measured(
        history,
        "anthropic",
        after_measure(window).to_json()
        | engine().apply(engine().emergency(window), window),
    )
    request = engine().build(window)
    assert (window.over_by, str(SUMMARY) in str(request)) == (0, False)
    assert window.view.record.messages > len(chat())
    assert request_faults(request) == []


@pytest.mark.parametrize("called", ["gemini", "anthropic", "other"])
def test_a_view_stays_when_nobody_can_read_the_compaction_that_it_began_with(called):
    """A line says so in the place of the block, and the record tells of what left."""
    history = compacted(SEALED, by="openai")
    window = measured(history, "openai")
    assert window.over_by == 0
    assert SEALED in engine().build(window)[0].content
    other = measured(history, called, window)
    assert (other.start, other.view.record) == (window.start, window.view.record)
    assert UNREADABLE_TEXT in str(
        [message.content for message in engine().build(other)]
    )
    back = measured(history, "openai", other)
    assert (back.over_by, engine().build(back)) == (0, engine().build(window))


BLOCKS = st.sampled_from(
    [SUMMARY, SEALED, THOUGHT, *SEARCH, TEXT, CALL, {"type": "image", "url": "https://a.example/b.png"}, "plain",
     {"type": "new", "a": [1, {"b": "c"}]}, {"type": 7}, {"type": "reasoning", "reasoning": "r"}, {"type": "text"}]
)  # fmt: skip


@given(
    st.lists(BLOCKS, max_size=8),
    st.sampled_from(PROVIDERS),
    st.sampled_from([*PROVIDERS, "other", ""]),
)
def test_a_message_is_made_readable_once(blocks, by, provider):
    message = made(*blocks, by=by)
    shown = readable(message, provider)
    assert (
        readable(shown, provider).content
        == readable(message, provider).content
        == shown.content
    )
    assert shown is message or provider not in {by, ""}
    texts = Counter(
        block["text"] for block in blocks if isinstance(block, dict) and "text" in block
    )
    kept = Counter(
        block["text"]
        for block in shown.content
        if isinstance(block, dict) and block.get("text")
    )
    assert not texts - kept
    assert message.content == blocks


@given(
    st.lists(st.sampled_from(["user", "answer", "anthropic", "openai"]), max_size=12),
    st.sampled_from(PROVIDERS),
)
def test_a_request_holds_all_that_follows_the_newest_compaction(kinds, provider):
    """Nothing before it is needed, nothing behind it is missing, and the question is there."""
    history = [HumanMessage("Begin.", id="begin")]
    for n, kind in enumerate(kinds):
        block = SUMMARY if kind == "anthropic" else SEALED
        plain = (
            HumanMessage(f"h{n}", id=f"m{n}")
            if kind == "user"
            else AIMessage(f"a{n}", id=f"m{n}")
        )
        compacting = made(
            block, {"type": "text", "text": f"t{n}"}, by=kind, name=f"m{n}"
        )
        history.append(plain if kind in {"user", "answer"} else compacting)
    window = measured(history, provider)
    request = engine().build(window)
    own = [
        index
        for index, message in enumerate(history)
        if compaction_in(message) and kinds[index - 1] == provider
    ]
    start = own[-1] if own else 0
    ids, following = (
        [message.id for message in request],
        [message.id for message in history[start:]],
    )
    assert [name for name in ids if name in following] == following
    assert (
        next(
            message.id
            for message in reversed(history)
            if isinstance(message, HumanMessage)
        )
        in ids
    )
    assert not own or first_answer(request).id == history[start].id
    assert sent(history, provider, window) == request


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
    ("called", "is_counted"),
    [(None, False), ("anthropic", False), ("gemini", True), ("other", True)],
)
def test_a_deferred_tool_costs_nothing_where_the_prompt_does_not_hold_it(
    called, is_counted
):
    tools = [tool(f"tool{n}", deferred=n > 0) for n in range(100)]
    window, alone = (
        measured([HumanMessage("Hi")], called, tools=given)
        for given in (tools, tools[:1])
    )
    assert (window.total_tokens > 10 * alone.total_tokens) is is_counted
    assert is_counted or window.total_tokens == alone.total_tokens


def answered(tokens, cleared=0, **metadata):
    managed = {
        "applied_edits": [
            {"type": "clear_tool_uses_20250919", "cleared_input_tokens": cleared}
        ]
    }
    metadata = {
        "model_provider": "anthropic",
        "context_management": managed,
        **metadata,
    }
    return AIMessage(
        "Done.", id="done", usage_metadata=usage(tokens), response_metadata=metadata
    )


def test_what_the_provider_cleared_itself_is_added_back():
    """The next request holds it again, so its size is that of what was sent, not of what the model saw."""
    history = [HumanMessage("word " * 4_000, id="q")]
    size = measured(history, "anthropic").total_tokens
    answer = answered(size - 3_000, cleared=3_000)
    window = measured([*history, answer, HumanMessage("Next?")], "anthropic")
    assert window.report["counted_by"] == "usage"
    assert size < window.total_tokens < size + 40
    event = StepEvent.of_answer(answer, info=None, estimated_tokens=size)
    assert event.accuracy == 1.0


def test_a_compaction_by_the_provider_is_paid_for():
    """Anthropic bills it beside the usage of the answer, and states it in its iterations only."""
    prices = {
        "input_price": Decimal(1),
        "output_price": Decimal(5),
        "cache_read_price": Decimal("0.1"),
    }
    info = ModelInfo(name="m", provider="anthropic", **prices)
    rounds = [
        {
            "type": "compaction",
            "input_tokens": 1_000,
            "cache_read_input_tokens": 9_000,
            "output_tokens": 100,
        },
        {"type": "message", "input_tokens": 200, "output_tokens": 5},
    ]
    # a chat model of somebody's own may keep the object of a client there
    plain = StepEvent.of_answer(answered(200, usage=object()), info=info)
    event = StepEvent.of_answer(answered(200, usage={"iterations": rounds}), info=info)
    assert float(event.cost - plain.cost) == pytest.approx((1_000 + 900 + 500) / 1e6)
    assert event.reported_tokens == 200


# Is reasoning that is tied to what preceded it sent back only behind that, and never left out without need?

MANUAL = {"type": "enabled", "budget_tokens": 1_024}
REDACTED = {"type": "redacted_thinking", "data": "ZQ=="}
SIGNED = {"type": "thinking", "thinking": "Hm. " * 40, "signature": "c2ln"}
FORMS = {
    "thinking": SIGNED,
    "redacted": REDACTED,
    "LangChain's": {
        "type": "reasoning",
        "reasoning": "Hm. " * 40,
        "extras": {"signature": "c2ln"},
    },
    "LangChain's, redacted": {"type": "non_standard", "value": REDACTED},
}


def thought(number, block=SIGNED, calls=()):
    text = {"type": "text", "text": f"answer {number}" + " word" * 60}
    return made(block, text, name=f"a{number}", calls=calls)


def thoughtful(turns, block=SIGNED):
    """A conversation in which each answer was thought about."""
    history = []
    for n in range(turns):
        asked = HumanMessage(f"question {n} " + "word " * 60, id=f"q{n}")
        history += [asked, thought(n, block)]
    return [*history, HumanMessage("And now?", id="now")]


def reasoned(window):
    """Ids of the answers whose reasoning is in a request."""
    kinds = {"thinking", "redacted_thinking", "reasoning", "non_standard"}
    return [
        message.id
        for message in engine().build(window)
        for block in message.content
        if isinstance(block, dict) and block["type"] in kinds
    ]


def recompacted(history, called):
    """The window after the compaction that a history needs, which is the same where it is measured anew."""
    window = measured(history, called)
    after = run(engine().applying(engine().emergency(window), window))
    state = after_measure(window).to_json() | after.session.to_json()
    again = measured(history, called, state)
    assert after.shown_as(after.view).assembled() == again.assembled()
    return again


@pytest.mark.parametrize("block", FORMS.values(), ids=FORMS)
def test_reasoning_of_before_a_compaction_leaves_and_that_of_later_answers_stays(block):
    """All of it until then goes at once, so that none is left out between others; requests extend each other again."""
    assert reasoned(measured(thoughtful(3, block), "anthropic")) == ["a0", "a1", "a2"]
    history = thoughtful(60, block)
    window = recompacted(history, "anthropic")
    before = engine().build(window)
    assert reasoned(window) == []
    assert sum(isinstance(message, AIMessage) for message in before) > 3
    for n in range(60, 63):
        history += [thought(n, block), HumanMessage(f"more {n}", id=f"q{n}")]
        window = measured(history, "anthropic", window)
        request = engine().build(window)
        assert request[: len(before)] == before
        before = request
    assert reasoned(window) == ["a60", "a61", "a62"]


def test_reasoning_of_before_a_lost_view_leaves_also_after_a_refusal_of_some():
    """Another branch begins otherwise: what was answered after the refusal is tied to a beginning that is gone, too."""
    history = thoughtful(60)
    refused = recompacted(history, "anthropic")
    refused = replace(refused, session=after_measure(refused))
    session = without_reasoning(refused).to_json()
    history += [thought(60), HumanMessage("more", id="more")]
    window = measured(history, "anthropic", session)
    assert reasoned(window) == ["a60"]
    start = window.session.view.start.index
    lost = measured([*history[:2], *history[start + 2 :]], "anthropic", window)
    assert lost.session.view.start is None
    assert reasoned(lost) == []


@pytest.mark.parametrize(
    ("further", "clamped", "kept"),
    [
        (2, {}, ["a61"]),
        (2, {"q61": Clamp(9, 9)}, []),
        (0, {}, []),
        (-2, {}, []),
    ],
)
def test_reasoning_stays_behind_a_block_where_all_in_between_does(
    further, clamped, kept
):
    """Not where a message is cut, or where pins and record stood right before a question, or further on: they move."""
    history = thoughtful(60)[:-1]
    stop = len(history) + further
    session = recompacted(history, "anthropic")
    for n in (60, 61):
        asked = HumanMessage(f"more {n} " + "word " * 60, id=f"q{n}")
        history += [asked, thought(n)]
    history.append(HumanMessage("And now?", id="now"))
    window = measured(history, "anthropic", session)
    summary = Pending(
        key="",
        start=uncovered(window.view, 0),
        stop=stop,
        digest=window.history.checksums[stop],
        since=0.0,
        max_tokens=99,
        text="Told.",
        block={"type": "compaction", "content": "Told.", "signature": "c2ln"},
    )
    window = replace(window, session=replace(window.session, pending=summary))
    after = show_summary(window)
    after = after.shown_as(replace(after.view, clamped=clamped))
    swap = Compaction(kind="force", reason="ready", before=window, after=after)
    assert reasoned(swap.applied(window)) == kept


@pytest.mark.parametrize("thinking", [None, MANUAL, {"type": "adaptive"}])
def test_a_pending_call_keeps_its_reasoning_where_the_api_wants_it(thinking):
    """It does with manual thinking; those models tie it to nothing. The next request extends that one all the same."""
    options = {"thinking": thinking, "max_tokens": 2_000, "api_key": "none"}
    model = ChatAnthropic(model="claude", **options)
    call = {"name": "look", "args": {"n": 99}, "id": "c99"}
    result = ToolMessage("found", tool_call_id="c99", id="r99")
    history = [*thoughtful(60), thought(99, calls=[call]), result]
    window = recompacted(history, model)
    kept = ["a99"] if thinking == MANUAL else []
    assert reasoned(window) == kept
    history += [thought(100), HumanMessage("Thanks.", id="thanks")]
    assert reasoned(measured(history, model, window)) == [*kept, "a100"]
