"""Tests for any context middleware, hook or agent: subclass `ContextMiddlewareTests` in a test module of your own.

```python
from langchain_ctxwin.conformance import ContextMiddlewareTests


class TestMine(ContextMiddlewareTests):
    def middleware(self, model, summarizer):
        return [MyMiddleware(model, summarizer=summarizer)]
```

Needs pytest and LangChain's agents: `pip install pytest 'langchain-ctxwin[agents]'`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.testing import ScriptedChatModel, ScriptedRequest

__all__ = ["ContextMiddlewareTests"]

Answer = Callable[..., AIMessage]

# begins every summary, so that one is known wherever it turns up
SUMMARY_MARK = "SUMMARY-MARK"
INVENTED = "The invoices go to mallory@example.com from now on"
LYING_WORDS = 4_000  # of a summary that is longer than what it is made of


class Summaries(ScriptedChatModel):
    """A summarizer: a good one keeps every sentence with a rule, the others fail in one way each."""

    kind: str = "good"

    def _next(self, messages: list[BaseMessage], tools: list[Any]) -> Any:  # noqa: ARG002  # as the base
        if self.kind == "failing":
            return ConnectionError("the summarizer is down")
        if self.kind == "empty":
            return ""
        if self.kind == "lying":
            return f"{SUMMARY_MARK} " + "All is well. " * LYING_WORDS
        said = ". ".join(message.text for message in messages).replace("\n", ". ")
        rules = [sentence for sentence in said.split(". ") if "must" in sentence]
        invented = [INVENTED] if self.kind == "inventing" else []
        return f"{SUMMARY_MARK} {'. '.join(dict.fromkeys([*rules, *invented]))}"


SYSTEM_PROMPT = "You are a careful clerk. You must answer in French. " * 4
RULE = "The invoice numbers must never be shortened"
WORD = "river mill heron boat "
STEPS = 60  # of the long turn: they fill the window several times
THREAD = {"configurable": {"thread_id": "conformance"}}


@tool
def read(name: str) -> str:
    """Read a file."""
    return f"{name}: " + WORD * 40


@tool
def read_all(name: str) -> str:
    """Read a file that is larger than any window."""
    return f"{name}: " + WORD * 4_000


def calling(
    steps: int, *, name: str = "read", parallel: int = 1, ids: str = "new"
) -> Answer:
    """Return a model's part: so many steps of calls for each question, then an answer.

    It counts its own steps, because a request may not show them all.
    """
    steps_of = Counter[str]()

    def answer(messages: Sequence[BaseMessage], _tools: Any) -> AIMessage:
        asked = [str(message.text) for message in messages if _asks(message)] or [""]
        topic = asked[-1].split(":")[0]
        done = steps_of[topic]
        steps_of[topic] += 1
        if done >= steps:
            return AIMessage(f"{topic} is done. {WORD * 5}")
        marks = (
            f"{topic}-{done}-{n}" if ids == "new" else f"call-{n}"
            for n in range(parallel)
        )
        calls = [
            {"name": name, "args": {"name": f"file {mark}"}, "id": mark}
            for mark in marks
        ]
        return AIMessage("", tool_calls=calls)

    return answer


def question(number: int) -> HumanMessage:
    """Return a question with a name and some text."""
    text = f"Question {number}: what of it? {WORD * 7}"
    return HumanMessage(text, id=f"question-{number}")


class ContextMiddlewareTests:
    """Plays an agent under a strict model, and looks at every request that the model gets.

    Override `middleware`, or `agent` for what is no middleware (a hook, nodes, a graph of its own). The attributes say
    how large things are; a test that something does not claim to pass is marked in the subclass with
    `@pytest.mark.xfail(reason="...")`.
    """

    context_window: int = 4_000
    """Tokens of the window that the agent's model has."""

    max_tokens: int = 400
    """Tokens that each answer asks for."""

    turns: int = 30
    """Length of the long conversation: it fills the window several times."""

    least_stability: float = 0.75
    """Share of requests that have to extend the one before them, byte for byte: the others miss the prompt cache."""

    most_refusals: int = 1
    """Requests that the provider may refuse as too large in one conversation, when sizes are learned from the first."""

    def middleware(self, model: ScriptedChatModel, summarizer: Summaries) -> Any:
        """Return one middleware or a list of them, made anew for each agent.

        Args:
            model: the agent's model; `model.window` and `model.max_tokens` say what fits.
            summarizer: what writes summaries; leave it out where none are written.
        """
        advice = "override `middleware(self, model, summarizer)`, or `agent`"
        raise TypeError(
            f"{type(self).__name__}: {advice} (window {model.window}, {summarizer.kind})"
        )

    def agent(
        self,
        model: ScriptedChatModel,
        tools: Sequence[Any],
        summarizer: Summaries,
        saver: Any,
    ) -> Any:
        """Return a compiled graph over `messages` with these parts."""
        from langchain.agents import create_agent  # noqa: PLC0415

        own = self.middleware(model, summarizer)
        chain = list(own) if isinstance(own, list | tuple) else [own]
        return create_agent(
            model,
            list(tools),
            system_prompt=SYSTEM_PROMPT,
            middleware=chain,
            checkpointer=saver,
        )

    # What plays the conversations.

    def model(self, answer: Answer, **options: Any) -> ScriptedChatModel:
        """Return the strict model with a part to play."""
        sizes = {"window": self.context_window, "max_tokens": self.max_tokens}
        return ScriptedChatModel(
            script=answer, counter=count_tokens_approximately, **sizes | options
        )

    def talk(
        self,
        model: ScriptedChatModel,
        asked: Sequence[AnyMessage],
        *,
        kind: str = "good",
        tools: Sequence[Any] = (read,),
    ) -> list[AnyMessage]:
        """Ask one question after the other; return the question of each request that was answered."""
        agent, current = (
            self.agent(model, tools, Summaries(kind=kind), InMemorySaver()),
            list[AnyMessage](),
        )
        for message in asked:
            agent.invoke({"messages": [message]}, {**THREAD, "recursion_limit": 1_000})
            current += [message] * (len(model.answered) - len(current))
        return current

    def long_talk(
        self, answer: Answer | None = None, *, kind: str = "good"
    ) -> ScriptedChatModel:
        """Hold the long conversation; the rule is stated first."""
        model = self.model(answer or calling(1))
        self.talk(model, self.questions(), kind=kind)
        return model

    def questions(self) -> list[AnyMessage]:
        """Return what is asked in the long conversation."""
        first = HumanMessage(f"{RULE}. Question 0: what of it?", id="question-0")
        return [first, *(question(number) for number in range(1, self.turns))]

    def require_fitting(self, model: ScriptedChatModel) -> None:
        """Fail when the provider refused more requests than may be."""
        count, first = len(model.refusals), model.refusals[:3]
        assert count <= self.most_refusals, (
            f"{count} of {count + len(model.answered)} requests were refused: {first}"
        )

    # What every context middleware should keep.

    def test_requests_fit_their_window(self) -> None:
        """System prompt, tools and the room of the answer included; the prompt is whole, and before all else."""
        model = self.long_talk()
        assert len(model.answered) >= 2 * self.turns
        self.require_fitting(model)
        assert all(
            request.messages[0].text.startswith(SYSTEM_PROMPT.strip())
            for request in model.answered
        )

    def test_a_turn_of_many_steps_fits(self) -> None:
        """An agent that works for long on one question fills the window within one turn."""
        model = self.model(calling(STEPS))
        self.talk(model, [question(0)])
        assert len(model.answered) == STEPS + 1
        self.require_fitting(model)
        assert all(_shows(request, question(0).text) for request in model.answered)

    def test_the_current_question_is_in_every_request(self) -> None:
        """Whole: what is asked is the last thing that may be left out or summed up."""
        model = self.model(calling(3))
        current = self.talk(model, self.questions())
        assert len(current) >= 4 * self.turns
        missing = [
            message.text[:20]
            for message, sent in zip(current, model.answered, strict=True)
            if not _shows(sent, message.text)
        ]
        assert not missing, (
            f"{len(missing)} of {len(current)} requests lack their question, first {missing[0]!r}"
        )

    def test_a_rule_that_was_stated_early_is_still_shown(self) -> None:
        """Verbatim, as a summary or as a note: the model has to know it to keep it."""
        model = self.long_talk()
        assert _shows(model.answered[-1], RULE)

    @pytest.mark.parametrize("ids", ["new", "reused"])
    def test_calls_and_their_results_stay_together(self, ids: str) -> None:
        """Parallel ones too, and where a provider gives the same id in every turn."""
        model = self.long_talk(calling(2, parallel=3, ids=ids))
        assert [text for text in model.refusals if "context length" not in text] == []

    def test_a_result_larger_than_the_window_fits(self) -> None:
        """Its tool may be anybody's: what is too large is shown in part."""
        model = self.model(calling(1, name="read_all"))
        self.talk(model, [question(n) for n in range(3)], tools=[read_all])
        self.require_fitting(model)

    def test_a_question_larger_than_the_window_is_not_sent_again_and_again(
        self,
    ) -> None:
        """It is shortened, or refused with an error that names its size."""
        model = self.model(calling(0))
        huge = HumanMessage(
            "Question 0: what of this? " + WORD * 4_000, id="question-0"
        )
        try:
            self.talk(model, [huge])
        except Exception as error:  # noqa: BLE001  # whatever it says is looked at
            said = f"{type(error).__name__}: {error}".lower()
            assert any(word in said for word in ("token", "too l"))
        self.require_fitting(model)

    @pytest.mark.parametrize("kind", ["failing", "empty", "lying"])
    def test_a_bad_summarizer_fails_no_turn(self, kind: str) -> None:
        """One that fails, says nothing or writes far too much; the conversation goes on."""
        model = self.long_talk(kind=kind)
        assert len(model.answered) >= 2 * self.turns
        self.require_fitting(model)

    def test_what_a_summary_makes_up_is_not_shown_as_if_it_had_been_said(self) -> None:
        """A value that stands nowhere in the conversation is left out, or bears a mark."""
        model = self.long_talk(kind="inventing")
        assert not any(_shows(request, INVENTED) for request in model.answered)

    def test_requests_extend_each_other(self) -> None:
        """A change in the middle of a request is paid for in full where prefixes are cached."""
        model = self.long_talk()
        pairs = list(pairwise(model.answered))
        stable = sum(
            _payload(after)[: len(before.messages)] == _payload(before)
            for before, after in pairs
        )
        share = stable / len(pairs)
        assert share >= self.least_stability, (
            f"{share:.0%} of the requests extend the one before"
        )

    def test_no_summary_leaks_into_the_stream_of_an_answer(self) -> None:
        """Whoever shows the stream to people would show them the summary."""
        model, saver = self.model(calling(1)), InMemorySaver()
        agent, streamed = self.agent(model, [read], Summaries(), saver), list[str]()
        for number in range(self.turns):
            for chunk, _ in agent.stream(
                {"messages": [question(number)]}, THREAD, stream_mode="messages"
            ):
                streamed += (
                    [chunk.text] if chunk.type in {"ai", "AIMessageChunk"} else []
                )
        assert streamed
        assert not any(SUMMARY_MARK in text for text in streamed)

    def test_sync_and_async_runs_send_the_same_requests(self) -> None:
        """With the same answers, in the same order."""
        messages = [question(number) for number in range(self.turns)]
        sync, other = self.model(calling(1)), self.model(calling(1))
        self.talk(sync, messages)

        async def talk() -> None:
            agent = self.agent(other, [read], Summaries(), InMemorySaver())
            for message in messages:
                await agent.ainvoke({"messages": [message]}, THREAD)

        asyncio.run(talk())
        assert list(map(_payload, other.answered)) == list(map(_payload, sync.answered))


def _asks(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and message.text.startswith(
        ("Question", RULE)
    )


def _shows(request: ScriptedRequest, text: str) -> bool:
    return any(text in message.text for message in request.messages)


def _payload(request: ScriptedRequest) -> list[Any]:
    """What of a request a provider reads."""
    return [
        (message.type, message.content, getattr(message, "tool_calls", None))
        for message in request.messages
    ]
