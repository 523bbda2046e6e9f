"""The four nodes of the map-reduce graph: split, map, reduce and collect, each sync and async."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import merge_configs, run_in_executor
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, Overwrite

from langchain_ctxwin.decompose.attempts import Attempts, usage_of
from langchain_ctxwin.decompose.chunks import Chunk, chunk_of
from langchain_ctxwin.decompose.collecting import Next, next_step, sends, whole_work
from langchain_ctxwin.decompose.events import Progress, announce_level, announce_unsplit
from langchain_ctxwin.decompose.parts import Parting
from langchain_ctxwin.decompose.questions import aask, ask, cut_question, read_questions, split_request
from langchain_ctxwin.decompose.state import Report, State, Work
from langchain_ctxwin.errors import BudgetExceededError, ConfigError
from langchain_ctxwin.measurer import shown

CALL_CONFIG: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": {"lc_source": "map_reduce"}}
"""Config of every call but the last: the tag keeps partial answers out of a user's stream of tokens."""


class MapReduceNodes:
    """The nodes around one model."""

    def __init__(self, model: Runnable[Any, Any], parting: Parting, *, sub_questions: bool) -> None:
        self._model = model
        self._parting = parting
        self._sub_questions = sub_questions
        self._progress = Progress()
        self.split = _node("split", self._split, self._asplit)
        """Cuts the input into parts and sends each to `map`."""
        self.map = _node("map", self._call, self._acall)
        """Answers the question from one part."""
        self.collect = _node("collect", self._collect, self._acollect)
        """Waits for the parts of a level; returns the answer, or sends the answers to `reduce`."""
        self.reduce = _node("reduce", self._call, self._acall)
        """Combines some answers into one."""

    def _split(self, state: State, config: RunnableConfig) -> Next:
        question, chunks = _question_of(state), _chunks_of(state)
        asks = self._asks(question)
        reply = ask(question, self._model, _quiet(config)) if asks else None
        return self._first_level(question, chunks, reply, asks)

    async def _asplit(self, state: State, config: RunnableConfig) -> Next:
        question, chunks = _question_of(state), await run_in_executor(None, _chunks_of, state)
        asks = await run_in_executor(None, self._asks, question)
        reply = await aask(question, self._model, _quiet(config)) if asks else None
        return await run_in_executor(None, self._first_level, question, chunks, reply, asks)

    def _asks(self, question: str) -> bool:
        """True when the model is asked for sub-questions: not when the request for them would be too large.

        Raises:
            BudgetExceededError: the question leaves no room for any part, so that no call is worth its price.
        """
        if not self._sub_questions:
            return False
        self._parting.of_documents(whole_work("", question, 0), [])
        return self._parting.takes(split_request(question))

    def _first_level(self, question: str, chunks: list[Chunk], reply: Any, asks: bool) -> Next:
        """Send the parts; the input leaves the state, because each further checkpoint would hold it again."""
        run = uuid4().hex
        found = self._found(question, reply) if self._sub_questions else ()
        sub_questions = list(found) if len(found) > 1 else []
        parts = self._parting.of_documents({**whole_work(run, question, 0), "chunks": chunks}, sub_questions)
        input_tokens, output_tokens = usage_of(reply)
        announce_level(0, len(parts.works), cuts=len(parts.cuts), sub_questions=len(sub_questions))
        update: dict[str, Any] = {
            "run": run,
            "level": 0,
            "outcomes": Overwrite([]),
            "waiting": [],
            "failures": [],
            "parts": len(parts.works),
            "report": Report(
                parts=[len(parts.works)],
                calls=int(asks),
                refused=0,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cut_off=0,
                cuts=parts.cuts,
                clamped=[],
                shortened_sources=parts.shortened_sources,
                sub_questions=sub_questions,
            ),
        }
        return Command(update=update, goto=sends(parts.works))

    def _found(self, question: str, reply: Any) -> tuple[str, ...]:
        """The sub-questions in a reply, or by the rules; none where they are so long that no room is left."""
        found = (read_questions(reply, question) if reply is not None else ()) or cut_question(question)
        try:
            self._parting.of_documents(whole_work("", question, 0), found)
        except BudgetExceededError:
            announce_unsplit("the sub-questions leave no room for documents beside the question")
            return ()
        return found

    def _call(self, work: Work, config: RunnableConfig) -> dict[str, Any]:
        attempts, config = Attempts(work, self._parting), _config_of(work, config)
        while (request := attempts.next_request()) is not None:
            try:
                attempts.answered(self._model.invoke(request, config))
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001  # reported, or raised again when no part was answered
                attempts.failed(error)
        return self._done(work, attempts)

    async def _acall(self, work: Work, config: RunnableConfig) -> dict[str, Any]:
        attempts, config = Attempts(work, self._parting), _config_of(work, config)
        while (request := await run_in_executor(None, attempts.next_request)) is not None:
            try:
                attempts.answered(await self._model.ainvoke(request, config))
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001  # reported, or raised again when no part was answered
                await run_in_executor(None, attempts.failed, error)
        return self._done(work, attempts)

    def _done(self, work: Work, attempts: Attempts) -> dict[str, Any]:
        outcome = attempts.outcome()
        self._progress.announce(work, outcome)
        return {"outcomes": [outcome]}

    def _collect(self, state: State) -> Next:
        return next_step(state, self._parting)

    async def _acollect(self, state: State) -> Next:
        return await run_in_executor(None, next_step, state, self._parting)


def _node(name: str, run: Any, arun: Any) -> Runnable[Any, Any]:
    return RunnableLambda(run, afunc=arun, name=name)


def _config_of(work: Work, config: RunnableConfig) -> RunnableConfig:
    return config if work["must_answer"] else _quiet(config)


def _quiet(config: RunnableConfig) -> RunnableConfig:
    return merge_configs(config, CALL_CONFIG)


def _question_of(state: State) -> str:
    question: Any = state.get("question")
    if isinstance(question, str) and question.strip():
        return question
    raise ConfigError(f"question={shown(question)}: pass what is to be answered from the documents, as a str")


def _chunks_of(state: State) -> list[Chunk]:
    documents: Any = state.get("documents")
    text = state.get("text")
    if (documents is None) == (text is None):
        raise ConfigError("the input needs either documents or text, and only one of them")
    if text is None and (isinstance(documents, str | bytes | dict) or not isinstance(documents, list | tuple)):
        raise ConfigError(f"documents={shown(documents)}: pass a list of Documents or texts, or pass text=")
    given = documents if text is None else [text]
    chunks = [chunk_of(number, document) for number, document in enumerate(given or [])]
    if not any(chunk["text"].strip() for chunk in chunks):
        raise ConfigError(f"the {len(chunks)} documents have no text: there is nothing to answer from")
    return chunks
