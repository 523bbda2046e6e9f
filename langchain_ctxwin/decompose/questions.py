"""Sub-questions: those that a question consists of, as a model writes them or as its question marks say."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from pydantic import Field, StringConstraints, TypeAdapter

from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.work import Wait, Work, arun, run

MAX_SUB_QUESTIONS = 12  # more are no questions of one person: the text was misread
LEAST_WORDS = 3  # a shorter part is no question of its own ("and why?")
INSTRUCTIONS = """\
Split the user's question into the separate questions that it asks, each complete in itself: replace pronouns by what \
they stand for. Keep every condition. Do not answer, and add nothing. A question that asks one thing stays as it is.
Reply with a JSON array of strings and nothing else."""

_QUESTION_END = re.compile(r"(?<=[?])\s+|(?<=[\uff1f\u061f])\s*")
_Question = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_REPLY = TypeAdapter(Annotated[list[_Question], Field(min_length=1, max_length=MAX_SUB_QUESTIONS)])


def split_question(
    question: str, model: Runnable[Any, Any] | None = None, *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Return the questions that `question` consists of, in its order; itself alone where it asks one thing.

    A model writes them complete in themselves. Without one, and when it fails or its reply cannot be used, a text of
    nothing but questions is cut after each; one may refer to another: show the whole question beside it.

    Examples:
        >>> split_question("Who signed the contract? When does it end?")
        ('Who signed the contract?', 'When does it end?')
    """
    return questions_in(question, run(asked(model, split_request(question), config)) if model else None)


async def asplit_question(
    question: str, model: Runnable[Any, Any] | None = None, *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Like `split_question`, awaiting the model."""
    return questions_in(question, await arun(asked(model, split_request(question), config)) if model else None)


def asked(
    model: Runnable[Any, Any],
    request: list[AnyMessage],
    config: RunnableConfig | None,
    place: AbstractContextManager[Any] | None = None,
) -> Work[Any]:
    """Return the reply of a model, or the exception that it raised; only an interrupt of the graph goes through.

    A blocking call holds a `place` meanwhile.
    """

    def invoke() -> Any:
        with place or nullcontext():
            return model.invoke(request, config)

    try:
        return (yield Wait(invoke, lambda: model.ainvoke(request, config)))
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  # whoever asks decides what a failure means
        return error


def split_request(question: str) -> list[AnyMessage]:
    """Return the messages that ask a model to split a question."""
    return [SystemMessage(INSTRUCTIONS), HumanMessage(question)]


def questions_in(question: str, reply: Any) -> tuple[str, ...]:
    """Return the questions in a reply of a model, or by their marks when there is none, or none that can be used."""
    if reply is None:
        return _by_marks(question)
    text = str(reply.text if isinstance(reply, BaseMessage) else reply)
    array = text[text.find("[") : text.rfind("]") + 1]  # models put a fence or a sentence around it
    try:
        found = tuple(dict.fromkeys(_REPLY.validate_json(array)))
    except ValueError:
        log.warning("decompose.question_unsplit", reason=f"unusable reply: {text[:80]!r}")
        return _by_marks(question)
    return found if len(found) > 1 else (question.strip(),)


def _by_marks(question: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in _QUESTION_END.split(question) if part.strip())
    is_several = 1 < len(found) <= MAX_SUB_QUESTIONS and found[-1].endswith(("?", "\uff1f", "\u061f"))
    # Other scripts write sentences without spaces.
    is_short = any(part.isascii() and len(part.split()) < LEAST_WORDS for part in found)
    return found if is_several and not is_short else (question.strip(),)
