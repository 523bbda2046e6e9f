"""Does a summary without a model keep what matters within its budget?"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.summarize import ExtractiveSummarizer

CALL = {"name": "get_order", "args": {"order_id": "#W12"}, "id": "c1"}
CHAT: list[AnyMessage] = [
    HumanMessage("Exchange the lamp of order #W12. Never ship to the old address."),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage('{"item": {"name": "Desk Lamp", "id": 1008292230}, "status": "delivered"}', tool_call_id="c1"),
    AIMessage("Your lamp was delivered. Which one do you want instead?"),
]


class WholeCounter:
    """Counts a text as more than the sum of its parts, as no honest counter would."""

    def count_text(self, text: str) -> int:
        return len(text) ** 2 // 40

    def __call__(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        return sum(self.count_text(str(message.text)) for message in messages)


class Letters(WholeCounter):
    """Counts letters."""

    def count_text(self, text: str) -> int:
        return len(text)


COUNTERS: tuple[TokenCounter, ...] = (count_tokens_approximately, WholeCounter(), Letters())


def extract(
    messages: Sequence[AnyMessage], previous: str = "", *, max_tokens: int = 200, counter: TokenCounter | None = None
) -> str:
    return ExtractiveSummarizer(counter=counter).summarize(messages, previous=previous, max_tokens=max_tokens)


def test_it_writes_the_record_of_the_messages():
    """What was said, done and seen; what one line tells, no other repeats, and the lines of before stay beside."""
    before = extract(CHAT)
    assert before.splitlines() == [
        "user: Exchange the lamp of order #W12. Never ship to the old address.",
        "get_order(#W12)",
        'name="Desk Lamp" id=1008292230',
        "answered: Your lamp was delivered. Which one do you want instead?",
    ]
    assert extract([], before) == before
    after = extract([HumanMessage("Send it to INV-77.")], before)
    assert after.splitlines() == [*before.splitlines(), "user: Send it to INV-77."]


def test_rules_stay_when_little_fits():
    """They are worth more than what was merely said, in every run."""
    chat = [*CHAT, HumanMessage("Nice weather today.")]
    (summary,) = {extract(chat, max_tokens=60, counter=Letters()) for _ in range(5)}
    assert "Never ship" in summary


@given(
    texts=st.lists(st.text(max_size=300), min_size=1, max_size=8),
    max_tokens=st.integers(1, 400),
    counter=st.sampled_from(COUNTERS),
)
def test_a_summary_is_never_longer_than_asked_for(texts, max_tokens, counter):
    """By any counter, of any text; where no line fits it says so."""
    count = getattr(counter, "count_text", lambda text: counter([HumanMessage(text)]))
    try:
        summary = extract([HumanMessage(text) for text in texts], max_tokens=max_tokens, counter=counter)
    except SummarizationError:
        return
    assert 0 < count(summary) <= max_tokens


@pytest.mark.parametrize(
    ("messages", "max_tokens", "says"), [([], 9, "nothing to summarize"), (CHAT, 0, "max_tokens=0")]
)
def test_what_cannot_be_summarized_is_refused(messages, max_tokens, says):
    """With the value and what to do."""
    with pytest.raises(SummarizationError, match=says):
        extract(messages, max_tokens=max_tokens)
