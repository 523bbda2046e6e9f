"""Why did the provider's prompt cache miss?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin.core.cache_misses import SentRequest, stated_miss
from langchain_ctxwin.observe import CacheMissEvent, MemorySink
from support.agents import WORD, agent_on, ask, model_of, on_both

TALK = [HumanMessage("Who?"), AIMessage("I.", id="before")]
SENT = {
    "model": "m",
    "tools_digest": "t",
    "system": "Be brief.",
    "messages": TALK,
    "tokens": 5_000,
    "compactions": 0,
}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model": "n", "system": "Be long."}, "model"),
        ({"system": "Be long.", "tools_digest": "u"}, "system"),
        ({"tools_digest": "u", "messages": TALK[1:]}, "tools"),
        ({"messages": TALK[1:]}, "messages"),
        ({"messages": [HumanMessage("What?"), *TALK]}, "messages"),
        (
            {"messages": [TALK[0], AIMessage("I.", id="after"), HumanMessage("Why?")]},
            "nothing",
        ),
    ],
)
def test_the_first_part_that_changed_is_named(changes, part):
    """What is added behind is no change, nor is what was learned of a message."""
    assert SentRequest(**{**SENT, **changes}).changed_since(SentRequest(**SENT)) == part


@pytest.mark.parametrize(
    ("before", "cached", "missed"),
    [(5_000, 0, 5_000), (5_000, 4_500, 0), (5_000, None, 0)],
)
def test_a_miss_is_a_part_of_the_request_before_worth_a_word(before, cached, missed):
    assert (
        SentRequest(**SENT).missed_tokens(
            SentRequest(**{**SENT, "tokens": before}), cached
        )
        == missed
    )


@pytest.mark.parametrize(
    "diagnostics",
    [
        None,
        "system",
        {"cache_miss_reason": None},
        {"cache_miss_reason": {"type": "unavailable"}},
    ],
)
def test_a_provider_that_cannot_tell_says_nothing(diagnostics):
    assert (
        stated_miss(AIMessage("", response_metadata={"diagnostics": diagnostics}))
        is None
    )


@on_both
def test_an_agent_tells_what_changed_when_its_cache_missed(adapter):
    """A compaction explains it; a cache that has expired is one where nothing changed."""
    cached = iter([0, 2_000, 0, 0])

    def policy(messages, tools):
        tokens = sum(len(message.text) // 4 for message in messages)
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        return AIMessage(
            "So.",
            usage_metadata={
                **usage,
                "input_token_details": {"cache_read": next(cached)},
            },
        )

    sink = MemorySink()
    agent = agent_on(adapter, model_of(10_000, policy=policy), sinks=[sink])
    for n in range(4):
        ask(agent, f"question {n} " + WORD * 2_000)
    told = [
        (event.changed, event.is_compacted, event.level)
        for event in sink.of(CacheMissEvent)
    ]
    assert told == [("nothing", False, "info"), ("messages", True, "debug")]
