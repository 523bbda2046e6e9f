"""What stays in every request."""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.outcome import seen
from langchain_ctxwin.core.priced_view import is_pinned, last_user, pin
from langchain_ctxwin.engine import ContextEngine
from support.conversations import CharCounter

FILLER = "lorem ipsum dolor " * 20  # 90 tokens


def engine_of(window=600, **config):
    settings = ContextConfig(output_reserve=0, summarize="off", **config)
    return ContextEngine(limits=ModelLimits(context_window=window), counter=CharCounter(), config=settings)


def chat(turns=10, **replaced):
    """Return a history of questions q0.. and answers a0.., some messages replaced by id."""
    messages = []
    for number in range(turns):
        messages.append(HumanMessage(f"question {number} {FILLER}", id=f"q{number}"))
        messages.append(AIMessage(f"answer {number}", id=f"a{number}"))
    messages.append(HumanMessage("the current question", id="now"))
    return [replaced.get(message.id, message) for message in messages]


def compacted(engine, messages, state=None):
    window = engine.measure(messages, session=state)
    update = engine.apply(engine.emergency(window), window)
    return engine.measure(messages, session=update), update


def ids(window):
    return [message.id for message in window.messages]


def test_a_pin_is_a_copy_with_the_same_id():
    """The original is not changed."""
    message = HumanMessage("keep", id="1", additional_kwargs={"a": 1})
    marked = pin(message)
    assert (marked.id, marked.content, is_pinned(marked), is_pinned(message)) == ("1", "keep", True, False)
    assert marked.additional_kwargs["a"] == 1


def test_the_first_question_stays_with_its_short_answer():
    """An answered question does not look open."""
    window, _ = compacted(engine_of(), chat())
    assert ids(window)[:2] == ["q0", "a0"]
    assert ids(window)[-1] == "now"


def test_a_long_answer_is_left_out_with_a_marker():
    """The pinned question is followed by a line that says so."""
    window, _ = compacted(engine_of(), chat(a0=AIMessage("long " * 200, id="a0")))
    assert ids(window)[:2] == ["q0", "q0:answered"]
    assert window.messages[1].content == "[left out]"


def test_the_first_question_may_leave():
    """When the setting says so."""
    window, _ = compacted(engine_of(pin_first_user=False), chat())
    assert "q0" not in ids(window)


def test_a_marked_message_stays_through_several_compactions():
    """Every later compaction carries it along."""
    engine = engine_of(pin_first_user=False)
    messages = chat(q3=pin(HumanMessage("never book before nine", id="q3")))
    _, state = compacted(engine, messages)
    grown = [*messages, *(m.model_copy(update={"id": f"later-{m.id}"}) for m in chat())]
    window, _ = compacted(engine, grown, state)
    assert "never book before nine" in [m.content for m in window.messages]


def test_a_new_pin_on_a_message_that_left_takes_effect_at_once():
    """It counts as one compaction, because the prefix changes, and only once."""
    engine = engine_of(pin_first_user=False)
    messages = chat()
    _, state = compacted(engine, messages)
    marked = [pin(m) if m.id == "q2" else m for m in messages]
    window = engine.measure(marked, session=state)
    assert "q2" in ids(window)
    assert window.report["compactions"] == 2
    again = engine.measure(marked, session={**state, **seen(window)})
    assert again.report["compactions"] == 2


def test_a_pin_covers_its_whole_step():
    """Parallel calls, calling messages in a row and notes between call and result stay together."""
    calls = [{"name": "f", "args": {}, "id": i} for i in ("x", "y")]
    step = [
        AIMessage("", tool_calls=calls[:1], id="c1"),
        AIMessage("", tool_calls=calls[1:], id="c2"),
        SystemMessage("note", id="s"),
        ToolMessage("result x", tool_call_id="x", id="rx"),
        pin(ToolMessage("result y", tool_call_id="y", id="ry")),
    ]
    messages = [HumanMessage("go", id="go"), *step, *chat()]
    window, _ = compacted(engine_of(pin_first_user=False), messages)
    shown = {m.id: m.content for m in window.messages}
    assert (shown["rx"], shown["ry"]) == ("result x", "result y")
    assert not any("not answered" in str(content) for content in shown.values())


def test_a_pinned_result_is_neither_cleared_nor_superseded():
    """Although the same call was made again later."""
    messages = [HumanMessage("go", id="go")]
    for number in range(12):
        messages.append(AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": f"x{number}"}], id=f"c{number}"))
        messages.append(ToolMessage(f"{number} {FILLER}", tool_call_id=f"x{number}", id=f"r{number}"))
    messages[2] = pin(messages[2])
    window, _ = compacted(engine_of(), messages)
    assert next(m for m in window.messages if m.id == "r0").content == f"0 {FILLER}"


def test_a_pinned_leading_system_message_is_shown_once():
    """It is in the system region and needs no second place."""
    messages = [pin(SystemMessage("be brief", id="s")), *chat()]
    window, state = compacted(engine_of(), messages)
    assert "s" not in ids(window)
    assert engine_of().measure(messages, session=state).report["compactions"] == 1


def test_constraints_are_verbatim_in_every_request():
    """Also after compaction."""
    engine = engine_of(constraints=("never book before nine",))
    window, _ = compacted(engine, chat())
    assert "- never book before nine" in engine.build(window)[0].content


def test_the_current_question_is_the_last_user_message():
    """None when there is none."""
    assert last_user([HumanMessage("a"), HumanMessage("b"), AIMessage("c")]) == 1
    assert last_user([AIMessage("c")]) is None
