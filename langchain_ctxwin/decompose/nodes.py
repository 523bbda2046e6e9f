"""The four nodes of the map-reduce graph: split, map, reduce and collect, each sync and async."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import merge_configs, run_in_executor
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, Overwrite

from langchain_ctxwin.arguments import shown
from langchain_ctxwin.decompose.attempts import Attempts
from langchain_ctxwin.decompose.chunks import Chunk, chunk_of
from langchain_ctxwin.decompose.collecting import Next, next_step, sends, whole_work
from langchain_ctxwin.decompose.events import Progress, announce_level
from langchain_ctxwin.decompose.parts import Parting
from langchain_ctxwin.decompose.questions import asplit_question, split_question
from langchain_ctxwin.decompose.state import Report, State, Work
from langchain_ctxwin.errors import ConfigError

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
        found = split_question(question, self._model, config=_quiet(config)) if self._sub_questions else ()
        return self._first_level(question, chunks, found)

    async def _asplit(self, state: State, config: RunnableConfig) -> Next:
        question, chunks = _question_of(state), _chunks_of(state)
        found = await asplit_question(question, self._model, config=_quiet(config)) if self._sub_questions else ()
        return await run_in_executor(None, self._first_level, question, chunks, found)

    def _first_level(self, question: str, chunks: list[Chunk], found: tuple[str, ...]) -> Next:
        """Send the parts; the input leaves the state, because each further checkpoint would hold it again."""
        run = uuid4().hex
        sub_questions = list(found) if len(found) > 1 else []
        parts = self._parting.of_documents({**whole_work(run, question, 0), "chunks": chunks}, sub_questions)
        announce_level(0, len(parts.works), cuts=len(parts.cuts), sub_questions=len(sub_questions))
        update: dict[str, Any] = {
            "documents": None,
            "text": None,
            "run": run,
            "level": 0,
            "outcomes": Overwrite([]),
            "waiting": [],
            "failures": [],
            "parts": len(parts.works),
            "report": Report(
                parts=[len(parts.works)],
                calls=0,
                refused=0,
                input_tokens=0,
                output_tokens=0,
                cut_off=0,
                cuts=parts.cuts,
                clamped=[],
                sub_questions=sub_questions,
            ),
        }
        return Command(update=update, goto=sends(parts.works))

    def _call(self, work: Work, config: RunnableConfig) -> dict[str, Any]:
        attempts, config = Attempts(work, self._parting), _config_of(work, config)
        while (request := attempts.request) is not None:
            try:
                attempts.answered(self._model.invoke(request, config))
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001  # reported, or raised again when no part was answered
                attempts.failed(error)
        return self._done(work, attempts)

    async def _acall(self, work: Work, config: RunnableConfig) -> dict[str, Any]:
        attempts, config = Attempts(work, self._parting), _config_of(work, config)
        while (request := attempts.request) is not None:
            try:
                attempts.answered(await self._model.ainvoke(request, config))
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001  # reported, or raised again when no part was answered
                attempts.failed(error)
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
