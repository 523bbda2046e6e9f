"""Is reasoning that is tied to what preceded it sent back only behind that, and never left out without need?"""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import ContextEngine, ModelLimits
from langchain_ctxwin.core.measuring import after_measure, update_without_reasoning
from langchain_ctxwin.util.work import run

LIMITS = ModelLimits(context_window=8_000, max_output_tokens=1_000)
MANUAL = {"type": "enabled", "budget_tokens": 1_024}
REDACTED = {"type": "redacted_thinking", "data": "ZQ=="}
FORMS = {
    "thinking": {"type": "thinking", "thinking": "Hm. " * 40, "signature": "c2ln"},
    "redacted": REDACTED,
    "LangChain's": {
        "type": "reasoning",
        "reasoning": "Hm. " * 40,
        "extras": {"signature": "c2ln"},
    },
    "LangChain's, redacted": {"type": "non_standard", "value": REDACTED},
}


def claude(**options):
    return ChatAnthropic(model="claude", api_key="none", **options)


def answered(number, block, *, calls=False, maker="anthropic"):
    call = {"name": "look", "args": {"n": number}, "id": f"c{number}"}
    text = {"type": "text", "text": f"answer {number} " + "word " * 60}
    about = {"model_provider": maker}
    return AIMessage(
        [block, text],
        id=f"a{number}",
        tool_calls=[call] if calls else [],
        response_metadata=about,
    )


def chat(turns, block, maker="anthropic"):
    """A conversation in which each answer was thought about."""
    history = []
    for n in range(turns):
        history += [
            HumanMessage(f"question {n} " + "word " * 60, id=f"q{n}"),
            answered(n, block, maker=maker),
        ]
    return [*history, HumanMessage("And now?", id="now")]


def reasoned(request):
    """Ids of the answers whose reasoning is in a request."""
    kinds = {"thinking", "redacted_thinking", "reasoning", "non_standard"}
    blocks = (
        (m.id, b)
        for m in request
        if isinstance(m.content, list)
        for b in m.content
        if isinstance(b, dict)
    )
    return [name for name, block in blocks if block["type"] in kinds]


def compacted(engine, history, called, session=None):
    """The window after the compaction that a history needs, which is the same where it is measured anew."""
    window = engine.measure(history, called=called, session=session)
    after = run(engine.applying(engine.emergency(window), window))
    update = after_measure(window).to_json() | after.session.to_json()
    again = engine.measure(history, called=called, session=update)
    assert after.shown_as(after.view).assembled() == again.assembled()
    return again


@pytest.mark.parametrize("block", FORMS.values(), ids=FORMS)
def test_reasoning_of_before_a_compaction_leaves_and_that_of_later_answers_stays(block):
    """All of it until then goes at once, so that none is left out between others; requests extend each other again."""
    engine, model = ContextEngine(LIMITS), claude()
    short = chat(3, block)
    assert reasoned(engine.build(engine.measure(short, called=model))) == [
        "a0",
        "a1",
        "a2",
    ]
    history = chat(60, block)
    window = compacted(engine, history, model)
    before = engine.build(window)
    assert reasoned(before) == []
    assert sum(isinstance(message, AIMessage) for message in before) > 3
    for n in range(60, 63):
        history += [answered(n, block), HumanMessage(f"more {n}", id=f"q{n}")]
        window = engine.measure(
            history, called=model, session=after_measure(window).to_json()
        )
        request = engine.build(window)
        assert [message.text for message in request[: len(before)]] == [
            message.text for message in before
        ]
        assert reasoned(request[: len(before)]) == reasoned(before)
        before = request
    assert reasoned(before) == ["a60", "a61", "a62"]


def test_reasoning_of_before_a_lost_view_leaves_also_after_a_refusal_of_some():
    """Another branch begins otherwise: what was answered after the refusal is tied to a beginning that is gone, too."""
    engine, model = ContextEngine(LIMITS), claude()
    history = chat(60, FORMS["thinking"])
    refused = compacted(engine, history, model)
    session = after_measure(refused).to_json() | update_without_reasoning(refused)
    history += [answered(60, FORMS["thinking"]), HumanMessage("more", id="more")]
    window = engine.measure(history, called=model, session=session)
    assert reasoned(engine.build(window)) == ["a60"]
    start = window.session.view.start.index
    branch = [*history[:2], *history[start + 2 :]]
    lost = engine.measure(branch, called=model, session=after_measure(window).to_json())
    assert lost.session.view.start is None
    assert reasoned(engine.build(lost)) == []


@pytest.mark.parametrize("thinking", [None, MANUAL, {"type": "adaptive"}])
def test_a_pending_call_keeps_its_reasoning_where_the_api_wants_it(thinking):
    """It does with manual thinking; those models tie it to nothing. The next request extends that one all the same."""
    engine, model = ContextEngine(LIMITS), claude(thinking=thinking, max_tokens=2_000)
    call, result = (
        answered(99, FORMS["thinking"], calls=True),
        ToolMessage("found", tool_call_id="c99", id="r99"),
    )
    history = [*chat(60, FORMS["thinking"]), call, result]
    window = compacted(engine, history, model)
    kept = ["a99"] if thinking == MANUAL else []
    assert reasoned(engine.build(window)) == kept
    history += [answered(100, FORMS["thinking"]), HumanMessage("Thanks.", id="thanks")]
    window = engine.measure(
        history, called=model, session=after_measure(window).to_json()
    )
    assert reasoned(engine.build(window)) == [*kept, "a100"]
