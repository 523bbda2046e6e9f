"""Does the conformance suite pass what is right, and see each thing that is wrong?"""

from contextlib import suppress

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage

from langchain_ctxwin import ModelLimits, create_context_agent
from langchain_ctxwin.conformance import (
    SYSTEM_PROMPT,
    ContextMiddlewareTests,
)
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.summarize.jobs import MARK
from langchain_ctxwin.testing import InvalidRequestError

TURNS = 18  # they fill the window more than once


def limits_of(model):
    return ModelLimits(context_window=model.window, max_output_tokens=model.max_tokens)


class TestMiddleware(ContextMiddlewareTests):
    """Ours in `create_agent`."""

    turns = TURNS

    def middleware(self, model, summarizer):
        return ContextWindowMiddleware(limits=limits_of(model), summarizer=summarizer)


class TestNodes(ContextMiddlewareTests):
    """Ours as a graph of its own."""

    turns = TURNS

    def agent(self, model, tools, summarizer, saver):
        options = {
            "limits": limits_of(model),
            "summarizer": summarizer,
            "checkpointer": saver,
        }
        return create_context_agent(
            model, tools, system_prompt=SYSTEM_PROMPT, **options
        )


class Edited(AgentMiddleware):
    """Ours, and then an edit of each request by somebody who is wrong."""

    def __init__(self, edit):
        super().__init__()
        self.edit = edit

    def wrap_model_call(self, request, handler):
        return handler(self.edit(request))

    async def awrap_model_call(self, request, handler):
        return await handler(self.edit(request))


def behind(other):
    """Ours, and behind it what is made with its summarizer."""
    return lambda model, summarizer: [
        ContextWindowMiddleware(limits=limits_of(model), summarizer=summarizer),
        other(summarizer),
    ]


def over(edit):
    """A middleware that changes the messages of each request."""
    return behind(
        lambda _: Edited(
            lambda request: request.override(messages=edit(list(request.messages)))
        )
    )


def without_results(messages):
    return [message for message in messages if not isinstance(message, ToolMessage)]


def without_questions(messages):
    last = max(
        i for i, message in enumerate(messages) if isinstance(message, HumanMessage)
    )
    return [HumanMessage("Go on."), *messages[:last], *messages[last + 1 :]]


def without(text, other=""):
    return lambda messages: [
        m.model_copy(update={"content": m.text.replace(text, other)}) if m.text else m
        for m in messages
    ]


def with_time(messages):
    with_time.now += 1
    return [HumanMessage(f"It is {with_time.now} o'clock."), *messages]


with_time.now = 0


def tried_again(request):
    for _ in range(3):
        with suppress(ContextOverflowError):
            request.model.invoke(request.messages)
    return request


class Summarizing(AgentMiddleware):
    """Asks for a summary past a threshold, where the stream of the agent sees it and nobody's failure is caught."""

    def __init__(self, summarizer, threshold):
        super().__init__()
        self.summarizer, self.threshold = summarizer, threshold

    def before_model(self, state, runtime):
        if len(state["messages"]) > self.threshold:
            self.summarizer.invoke("You must sum this up.")


class OnlySync(AgentMiddleware):
    """Does in sync runs what it does not do in async ones."""

    def wrap_model_call(self, request, handler):
        return handler(
            request.override(messages=[HumanMessage("Sync."), *request.messages])
        )

    async def awrap_model_call(self, request, handler):
        return await handler(request)


def summarizing(threshold):
    return behind(lambda summarizer: Summarizing(summarizer, threshold))


def nothing(model, summarizer):
    return []


WRONG = {
    "test_requests_fit_their_window": nothing,
    "test_a_turn_of_many_steps_fits": nothing,
    "test_the_current_question_is_in_every_request": over(without_questions),
    "test_a_rule_that_was_stated_early_is_still_shown": over(without("must", "may")),
    "test_calls_and_their_results_stay_together": over(without_results),
    "test_a_result_larger_than_the_window_fits": nothing,
    "test_a_question_larger_than_the_window_is_not_sent_again_and_again": lambda model, summarizer: [
        Edited(tried_again)
    ],
    "test_a_bad_summarizer_fails_no_turn": summarizing(20),
    "test_what_a_summary_makes_up_is_not_shown_as_if_it_had_been_said": over(
        without(MARK)
    ),
    "test_requests_extend_each_other": over(with_time),
    "test_no_summary_leaks_into_the_stream_of_an_answer": summarizing(0),
    "test_sync_and_async_runs_send_the_same_requests": behind(lambda _: OnlySync()),
}
"""For each test, what it has to see."""

ARGUMENTS = {
    "test_calls_and_their_results_stay_together": ("new",),
    "test_a_bad_summarizer_fails_no_turn": ("failing",),
}


def test_each_test_is_seen_to_fail():
    named = {name for name in dir(ContextMiddlewareTests) if name.startswith("test_")}
    assert named == WRONG.keys()


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(name):
    class Wrong(ContextMiddlewareTests):
        turns = TURNS

        def middleware(self, model, summarizer):
            return WRONG[name](model, summarizer)

    with pytest.raises(
        (AssertionError, InvalidRequestError, ContextOverflowError, ConnectionError)
    ):
        getattr(Wrong(), name)(*ARGUMENTS.get(name, ()))


def test_a_class_that_says_nothing_is_told_what_to_say():
    with pytest.raises(TypeError, match="override `middleware"):
        ContextMiddlewareTests().test_requests_fit_their_window()
