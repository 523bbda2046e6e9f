"""Why did the provider's prompt cache miss?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_ctxwin.core.events import SentRequest, cache_miss
from langchain_ctxwin.observe import CacheMissEvent, MemorySink
from support.agents import WORD, agent_on, ask, model_of, on_both

TALK = [HumanMessage("Who?"), AIMessage("I.", id="before")]
PROMPT = SystemMessage("Be brief.")
SENT = {
    "model": "m",
    "tools_digest": "t",
    "messages": [PROMPT, *TALK],
    "tokens": 5_000,
    "cached_tokens": 0,
    "compactions": 0,
}
LATER = [TALK[0], AIMessage("I.", id="after"), HumanMessage("Why?")]


def missed(before=None, answer=None, **changes):
    """What and how much missed, in a request that differs by `changes` from the one before."""
    event = cache_miss(
        SentRequest(**{**SENT, **changes}),
        SentRequest(**{**SENT, **(before or {})}),
        answer or AIMessage("So."),
    )
    return event and (event.changed, event.missed_tokens)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model": "n", "messages": TALK}, "model"),
        ({"messages": TALK, "tools_digest": "u"}, "system"),
        ({"tools_digest": "u", "messages": [PROMPT]}, "tools"),
        ({"messages": [PROMPT, *TALK[1:]]}, "messages"),
        ({"messages": [PROMPT, HumanMessage("What?"), *TALK]}, "messages"),
        ({"messages": [PROMPT, *LATER]}, "nothing"),
    ],
)
def test_the_first_part_that_changed_is_named(changes, part):
    """What is added behind is no change, nor is what was learned of a message."""
    assert missed(**changes) == (part, 5_000)


@pytest.mark.parametrize("cached", [4_500, None])
def test_a_miss_is_a_part_of_the_request_before_worth_a_word(cached):
    assert missed(cached_tokens=cached) is None


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
