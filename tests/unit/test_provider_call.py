"""Does a request tell its provider what its cache and its server-side history need, and nothing that it refuses?"""

import json
from functools import partial
from operator import le

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import (
    ContextConfig,
    ModelInfo,
    ModelLimits,
    create_context_agent,
)
from langchain_ctxwin.core.model_info import RULES, UNKNOWN, rules_of
from langchain_ctxwin.core.provider_call import (
    EXPLICIT,
    MAX_BREAKPOINTS,
    OPENAI_BREAKPOINT,
    with_breakpoints,
)
from langchain_ctxwin.core.standing import STATEMENT_CHARS
from langchain_ctxwin.middleware import ContextWindowMiddleware

MARK = {"type": "ephemeral"}
HOUR = {**MARK, "ttl": "1h"}
LIMITS = ModelLimits(context_window=4_000, max_output_tokens=500)
THREAD = {"configurable": {"thread_id": "Ann's conversation"}}


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing at {place}"


class Recorded:
    """A chat model of an integration that answers without a server, and keeps what it would have sent."""

    def _generate(self, messages, stop=None, run_manager=None, **options):
        self.metadata["sent"].append(
            self._get_request_payload(messages, stop=stop, **options)
        )
        answers = self.metadata["answers"]
        answer = answers.pop(0) if answers else AIMessage("word " * 60)
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])


class Claude(Recorded, ChatAnthropic):
    pass


class Gpt(Recorded, ChatOpenAI):
    pass


def claude(*answers, **options):
    return Claude(
        model="claude",
        api_key="none",
        metadata={"sent": [], "answers": [*answers]},
        **options,
    )


def gpt(*answers, **options):
    record = {"sent": [], "answers": [*answers]}
    return Gpt(
        model="gpt", api_key="none", use_responses_api=True, metadata=record, **options
    )


def sent_by(model):
    return model.metadata["sent"]


def breakpoints(value):
    if isinstance(value, dict):
        here = isinstance(value.get("cache_control"), dict)
        return here + sum(
            breakpoints(part) for key, part in value.items() if key != "cache_control"
        )
    return sum(map(breakpoints, value)) if isinstance(value, list) else 0


def talk(agent, turns=12):
    for n in range(turns):
        agent.invoke(
            {"messages": [HumanMessage(f"question {n} " + "word " * 150)]}, THREAD
        )


def agent_of(model, adapter, others=(), **options):
    common = {"system_prompt": "Be good.", "checkpointer": InMemorySaver()}
    if adapter == "nodes":
        return create_context_agent(model, [look], limits=LIMITS, **common, **options)
    ours = ContextWindowMiddleware(limits=LIMITS, **options)
    middleware = {"before": [*others, ours], "after": [ours, *others]}[adapter]
    return create_agent(model, [look], middleware=middleware, **common)


@pytest.mark.parametrize("adapter", ["nodes", "after"])
def test_anthropic_requests_have_breakpoints_behind_what_stays(adapter):
    """Behind the prompt, what stays of the record, and the newest message: a middleware behind ours may set one."""
    model = claude()
    talk(agent_of(model, adapter))
    first, last = sent_by(model)[0], sent_by(model)[-1]
    assert (breakpoints(first), breakpoints(last)) == (2, 3)
    assert first["cache_control"] == last["cache_control"] == MARK
    assert last["system"][-1]["cache_control"] == MARK
    marked = [
        n
        for n, message in enumerate(last["messages"])
        if breakpoints(message["content"])
    ]
    record = next(
        n
        for n, message in enumerate(last["messages"])
        if "<record>" in json.dumps(message)
    )
    assert marked == [record]


def test_a_caching_middleware_behind_ours_has_a_breakpoint_left():
    """It marks the prompt, the tools and the newest message, before and after a compaction."""
    model, caching = claude(), AnthropicPromptCachingMiddleware()
    talk(agent_of(model, "after", [caching]))
    sent = sent_by(model)
    assert "<record>" in json.dumps(sent[-1])
    assert max(map(breakpoints, sent)) == MAX_BREAKPOINTS


@pytest.mark.parametrize(
    ("model", "config", "mark"),
    [
        (claude(), ContextConfig(prompt_cache="off"), None),
        (gpt(), None, None),
        (claude(model_kwargs={"cache_control": HOUR}), None, HOUR),
    ],
    ids=["switched off", "another provider", "the model is set to one of its own"],
)
def test_nothing_is_marked_where_nobody_wants_it_and_what_a_model_is_set_to_stays(
    model, config, mark
):
    talk(agent_of(model, "nodes", config=config), turns=1)
    assert sent_by(model)[0].get("cache_control") == mark
    assert mark or breakpoints(sent_by(model)[0]) == 0


BLOCK = st.fixed_dictionaries(
    {"type": st.just("text"), "text": st.text(min_size=1, max_size=3)},
    optional={"cache_control": st.just(MARK)},
)
CONTENT = st.text(min_size=1, max_size=3) | st.lists(BLOCK, min_size=1, max_size=4)
MESSAGE = st.builds(HumanMessage, CONTENT) | st.builds(
    lambda c: ToolMessage(c, tool_call_id="c"), CONTENT
)


@given(
    st.none() | st.builds(SystemMessage, CONTENT),
    st.lists(MESSAGE, max_size=6),
    st.integers(0, 5),
)
def test_breakpoints_are_added_to_those_of_others_as_far_as_there_is_room(
    system, messages, tools
):
    """Only marks are added, and one more behind the newest message has room."""
    marked_tools = [{"name": f"t{n}", "cache_control": MARK} for n in range(tools)]
    request = [
        *([system] if system else []),
        HumanMessage("<record>", id="ctxwin-record"),
        *messages,
    ]
    marked = with_breakpoints(request, marked_tools, MARK)
    own = [breakpoints(message.content) for message in request]
    counts = [breakpoints(message.content) for message in marked]
    most = MAX_BREAKPOINTS - tools - (not own[-1])
    assert all(map(le, own, counts))
    assert sum(counts) <= max(sum(own), most)
    assert [message.text for message in marked] == [message.text for message in request]


@given(
    st.lists(st.integers(1, 300), max_size=400),
    st.floats(0, 4),
    st.sampled_from([" ", "\n"]),
    st.integers(0, STATEMENT_CHARS),
)
def test_what_a_record_says_is_read_from_the_cache_when_something_is_added(
    chars, growth, joint, intent
):
    """The blocks up to the breakpoint stay, and the next breakpoint is within the twenty that are looked back.

    Calls are lines of their own, what people say is one line for ever. What is open may become shorter by as much as is
    added: a record that is shorter as a whole has its breakpoint further in front.
    """

    def blocks(sizes, intent):
        said = joint.join("x" * size for size in sizes)
        end = f"open: {'y' * intent}\n(1,000 messages left out)\n</record>"
        text = f"<record> ...\n{said}\n{end}"
        (record,) = with_breakpoints([HumanMessage(text, id="ctxwin-record")], (), MARK)
        assert record.text == text
        parts = record.content if isinstance(record.content, list) else [{"text": text}]
        stop = next(
            (i + 1 for i, part in enumerate(parts) if "cache_control" in part), 0
        )
        return [part["text"] for part in parts[:stop]]

    added = [200] * int(growth * sum(chars) / 201)
    before = blocks(chars, intent)
    after = blocks([*chars, *added], max(0, intent - sum(added)))
    assert after[: len(before)] == before
    assert len(after) - len(before) < 20
    assert before or sum(chars) < 1_000


def test_openai_gets_a_key_that_is_the_conversations_own():
    model = gpt()
    agent = agent_of(model, "nodes")
    agent.invoke({"messages": [HumanMessage("Hi")]}, THREAD)
    agent.invoke(
        {"messages": [HumanMessage("Hi")]}, {"configurable": {"thread_id": "other"}}
    )
    agent.invoke({"messages": [HumanMessage("So?")]}, THREAD)
    keys = [request["prompt_cache_key"] for request in sent_by(model)]
    assert keys[0] == keys[2] != keys[1]
    assert "Ann" not in keys[0]


BREAK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
NEW, OLD = {"release_date": "2026-07-09"}, {"release_date": "2026-07-08"}


def openai_marks(messages):
    return [
        str(message.content).count("prompt_cache_breakpoint") for message in messages
    ]


def marked_for_openai(messages):
    return with_breakpoints(messages, (), EXPLICIT, OPENAI_BREAKPOINT)


@pytest.mark.parametrize("adapter", ["nodes", "after"])
@pytest.mark.parametrize(
    ("model", "config", "marks"),
    [
        (partial(gpt, profile=NEW), None, 1),
        (partial(gpt, profile=OLD), None, 0),
        (gpt, None, 0),
        (partial(gpt, profile=NEW), ContextConfig(prompt_cache="off"), 0),
        (partial(claude, profile=NEW), None, 0),
    ],
    ids=["new", "old", "nobody knows", "off", "Anthropic"],
)
def test_openai_gets_a_breakpoint_behind_its_prompt_where_its_cache_matches_at_them(
    adapter, model, config, marks
):
    """Before and after a compaction alike, and one in the record; the release of a model says which those are."""
    model = model()
    talk(agent_of(model, adapter, config=config), turns=20)
    sent = [json.dumps(request) for request in sent_by(model)]
    assert "<record>" in sent[-1]
    counts = [request.count("prompt_cache_breakpoint") for request in sent]
    assert {*counts} == {marks, 2 * marks}
    assert (counts[0], counts[-1]) == (marks, 2 * marks)
    assert not marks or "prompt_cache_breakpoint" in json.dumps(
        sent_by(model)[-1]["input"][0]
    )


def test_of_openais_breakpoints_one_is_added_where_others_leave_room():
    """One is the server's own; one at the prompt is known in whatever form it was set."""
    block = {"type": "text", "text": "Hi"}
    prompt, others = SystemMessage("Be good."), [HumanMessage([{**block, **BREAK}])] * 3
    assert openai_marks(marked_for_openai([prompt, *others])) == [1, 1, 1, 1]
    full = [prompt, *others, HumanMessage("So?")]
    assert openai_marks(marked_for_openai(full)) == [0, 1, 1, 1, 0]
    own = SystemMessage([{"type": "text", "text": "Be good.", "extras": BREAK}])
    assert marked_for_openai([own, HumanMessage("So?")])[0] is own


def answer(number, text="word " * 60):
    return AIMessage(
        text, response_metadata={"id": f"resp_{number}", "model_provider": "openai"}
    )


@pytest.mark.parametrize("adapter", ["nodes", "after"])
def test_a_compaction_ends_server_side_history(adapter):
    """The requests after it name no response and hold the whole view."""
    model = gpt(*map(answer, range(30)), use_previous_response_id=True)
    talk(agent_of(model, adapter), turns=30)
    named = [request.get("previous_response_id") for request in sent_by(model)]
    compacted = named.index(None, 1)
    assert named[1:compacted] == [f"resp_{n}" for n in range(compacted - 1)]
    for number, request in enumerate(sent_by(model)):
        if 0 < number < compacted:
            assert len(request["input"]) == 1
        elif number:
            assert named[number] is None
            assert "<record>" in json.dumps(request["input"])


# Is what differs between providers and releases of models one table, switched by facts and never by a name?

KEY = {"api_key": "none"}


def test_only_models_that_may_tie_reasoning_lose_it_at_a_compaction():
    """Those of Anthropic, and of whoever nobody knows; a client at another address speaks OpenAI's language."""
    other = ChatOpenAI(model="m", base_url="http://127.0.0.1/v1", **KEY)
    binds = {name: rules.binds_reasoning for name, rules in RULES.items()}
    assert [name for name, is_bound in binds.items() if is_bound] == ["anthropic"]
    assert UNKNOWN.binds_reasoning
    assert not rules_of(other).binds_reasoning
    assert rules_of(ChatAnthropic(model="m", **KEY)).binds_reasoning


def test_a_marked_prefix_lasts_as_long_as_its_provider_says():
    """Anthropic keeps it minutes unless an hour is asked for."""
    seconds = {name: rules.marked_seconds for name, rules in RULES.items()}
    assert min(seconds.items(), key=lambda item: item[1]) == ("anthropic", 300)


def test_a_registry_may_state_that_a_model_takes_breakpoints():
    stated = {"name": "m", "provider": "openai"}
    able = ModelInfo(**stated, capabilities=frozenset({"cache_breakpoints"}))
    takes = [rules_of(one).takes_breakpoints for one in (ModelInfo(**stated), able)]
    assert takes == [False, True]
