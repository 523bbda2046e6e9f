"""Sub-questions: those that a question consists of, as a model writes them."""

from __future__ import annotations

from typing import Annotated, Any

import structlog
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp
from pydantic import Field, StringConstraints, TypeAdapter

log = structlog.get_logger("langchain_ctxwin")

MAX_SUB_QUESTIONS = 12
"""More parts than this are no questions of one person: the text was misread."""

INSTRUCTIONS = """\
Split the user's question into the separate questions that it asks, each complete in itself: replace pronouns by what \
they stand for. Keep every condition. Do not answer, and add nothing. A question that asks one thing stays as it is.
Reply with a JSON array of strings and nothing else."""

_Question = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_REPLY = TypeAdapter(Annotated[list[_Question], Field(min_length=1, max_length=MAX_SUB_QUESTIONS)])


def split_question(
    question: str, model: Runnable[Any, Any], *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Return the questions that `question` consists of, in its order, each complete in itself, as a model writes them.

    It is itself alone where it asks one thing, and when the model fails or its reply cannot be used.

    Example:
        ```python
        split_question("Who signed the contract and when does it end?", model)
        ("Who signed the contract?", "When does the contract end?")
        ```
    """
    return questions_in(question, ask(model, split_request(question), config))


async def asplit_question(
    question: str, model: Runnable[Any, Any], *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Like `split_question`, awaiting the model."""
    return questions_in(question, await aask(model, split_request(question), config))


def ask(model: Runnable[Any, Any], request: list[AnyMessage], config: RunnableConfig | None) -> Any:
    """Return the reply of a model, or the exception that it raised; only an interrupt of the graph goes through."""
    try:
        return model.invoke(request, config)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  # whoever asks decides what a failure means
        return error


async def aask(model: Runnable[Any, Any], request: list[AnyMessage], config: RunnableConfig | None) -> Any:
    """Like `ask`, awaiting the model."""
    try:
        return await model.ainvoke(request, config)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  # whoever asks decides what a failure means
        return error


def split_request(question: str) -> list[AnyMessage]:
    """Return the messages that ask a model to split a question."""
    return [SystemMessage(INSTRUCTIONS), HumanMessage(question)]


def questions_in(question: str, reply: Any) -> tuple[str, ...]:
    """Return the questions in a reply of a model; the question itself when there are none that can be used."""
    text = str(reply.text if isinstance(reply, BaseMessage) else reply)
    array = text[text.find("[") : text.rfind("]") + 1]  # models put a fence or a sentence around it
    try:
        found = tuple(dict.fromkeys(_REPLY.validate_json(array)))
    except ValueError:
        log.warning("decompose.question_unsplit", reason=f"unusable reply: {text[:80]!r}")
        found = ()
    return found if len(found) > 1 else (question.strip(),)
