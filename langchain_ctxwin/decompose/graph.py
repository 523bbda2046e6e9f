"""A graph that answers a question from more text than fits any window: its nodes, and what its checkpoints keep.

    split -> map (each part, at the same time) -> collect -> [reduce (some answers each) -> collect]* -> END

Checkpoints keep the input as it was passed until its parts are made, then JSON only: each part with its text, and
answers. No level, and no further part, adds another copy of the text.
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, NotRequired, TypedDict, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import merge_configs
from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore
from langgraph.types import Command, Overwrite, Send
from pydantic import Field, StringConstraints, TypeAdapter

from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.recovery import LENGTH_STOPS, STOP_KEYS
from langchain_ctxwin.decompose.parts import (
    MAP_PROMPT,
    REDUCE_PROMPT,
    Chunk,
    ChunkPlace,
    Counts,
    Part,
    PartAnswer,
    PartSplitter,
    chunk_of,
    no_counts,
    places_of,
)
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ConfigError,
    ContextWindowError,
    NoModelFitsError,
    brief,
    expect,
)
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.util.failures import digest_of, log_failure, log_text
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.work import Wait, Work, arun, run

MAX_CONCURRENCY = 8  # few enough for the rate limits of a usual account, and an eighth of the waiting
CALL_CONFIG: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": {"lc_source": "map_reduce"}}
"""Config of every call but the last: the tag keeps partial answers out of a user's stream of tokens."""
LONGEST_ERROR_CHARS = 500  # error texts may quote the request; a report needs their beginning
ROOM = "__room_for_calls"
"""Key of what bounds the calls of a streamed run; LangGraph stores no key that begins like this."""


def create_map_reduce_graph(
    model: Runnable[Any, Any],
    *,
    limits: Any = None,
    counter: TokenCounter | None = None,
    map_prompt: str = MAP_PROMPT,
    reduce_prompt: str = REDUCE_PROMPT,
    max_concurrency: int = MAX_CONCURRENCY,
    output_reserve: int | None = None,
    sub_questions: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
    **compile_options: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a compiled graph: split the input into parts that fit, answer from each, combine the answers.

        split -> map (each part) -> collect -> [reduce (some answers each) -> collect]* -> END

    Input: `question`, and `documents` (Documents, texts, or dicts with `page_content` and `metadata`) or `text`.
    Output: `answer`; `failures`, the parts that it does not consider and why; `parts`, how many the input had; and
    `report`: parts per level, calls, tokens, where documents were cut, which answers were shortened.

    Documents stay whole where they fit, several small ones share a part, larger ones are cut between sections, else
    paragraphs, lines or sentences. Input that fits makes one call. A part that the provider refuses as too large is
    split and tried again. A part whose call fails otherwise, after the model's own retries, is reported; when all of
    them fail, the provider's exception leaves the graph. With a checkpointer, a run that ended by a crash or an
    exception goes on with `invoke(None, config)` and repeats no finished part. Each part done is an event on the
    `custom` stream.

    Args:
        model: a chat model, or a Runnable around one; set its own retries.
        limits: the model's limits, where the model does not state them itself.
        counter: counts tokens; parts are as large as its upper bound allows.
        map_prompt: instructions for the calls on documents.
        reduce_prompt: instructions for the calls that combine answers.
        max_concurrency: calls at a time; `max_concurrency` in the config of a run wins.
        output_reserve: tokens kept for each answer.
        sub_questions: ask the model first which questions the question consists of, and answer each on its own: as
            many calls for each of them as there are parts.
        checkpointer: makes runs resumable.
        store: passed on to the graph.
        **compile_options: passed to `StateGraph.compile`.

    Raises:
        UnknownModelError: neither the model nor `limits` states a limit.
        BudgetExceededError: the prompts and the output reserve leave no room; in a run, with the question.
        ConfigError: an argument, or the input of a run, is not usable.

    Examples:
        ```python
        graph = create_map_reduce_graph(model)
        result = graph.invoke({"question": "Who owns which company?", "documents": documents})
        result["answer"], result["failures"]
        ```
    """
    expect(model, Runnable, "model", "a chat model or a Runnable around one")
    if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise ConfigError(f"max_concurrency={max_concurrency!r}: give a whole number of calls, at least 1")
    prompts = (map_prompt, reduce_prompt)
    parts = PartSplitter(model, limits=limits, counter=counter, output_reserve=output_reserve, prompts=prompts)
    parts.document_room("")  # prompts that leave no room are refused here
    nodes = _Nodes(model, parts, sub_questions=sub_questions)
    builder = StateGraph(State, input_schema=MapReduceInput, output_schema=MapReduceOutput)
    builder.add_node("split", _node("split", nodes.split), destinations=("map",))
    builder.add_node("map", _node("map", nodes.answer))
    builder.add_node("collect", RunnableLambda(nodes.collect, name="collect"), destinations=("map", "reduce", END))
    builder.add_node("reduce", _node("reduce", nodes.answer))
    builder.add_edge(START, "split")
    builder.add_edge("map", "collect")
    builder.add_edge("reduce", "collect")
    graph = builder.compile(checkpointer=checkpointer, store=store, **compile_options)
    return _Graph(**vars(graph)).with_config(max_concurrency=max_concurrency)


class _Graph(CompiledStateGraph[Any, Any, Any, Any]):
    """Waits for streamed events on a thread of its own.

    LangGraph waits for them on a thread of the pool that runs the nodes, so that a pool of one would wait for ever. It
    gets one more, and the calls are counted here.
    """

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:  # noqa: A002  # the host's name
        config, mode = merge_configs(self.config, config), options.get("stream_mode")
        modes = {mode} if isinstance(mode, str) else {*(mode or ())}
        calls = config.get("max_concurrency")
        if calls and (modes & {"custom", "messages"} or options.get("subgraphs")):  # otherwise in their order
            room: RunnableConfig = {"max_concurrency": calls + 1, "configurable": {ROOM: threading.Semaphore(calls)}}
            config = merge_configs(config, room)
        return super().stream(input, config, **options)


class Failure(TypedDict):
    """A part that got no answer, and the places of the input that are not considered for it."""

    level: int
    part: int
    sub_question: str
    chunks: list[ChunkPlace]
    error: str


class Outcome(Counts):
    """All that became of one part."""

    part: int
    answers: list[PartAnswer]
    failures: list[Failure]
    unanswered: Part | None  # the work itself, as long as it may have to be tried again


class RunReport(Counts):
    """How the answer came about, in numbers."""

    parts: list[int]  # per level; the first is the input's
    sub_questions: list[str]


class MapReduceInput(TypedDict):
    """What a run begins with: `documents` or `text`."""

    question: str
    documents: NotRequired[Sequence[Document | str | dict[str, Any]]]
    text: NotRequired[str]


class MapReduceOutput(TypedDict):
    """What a run returns; `failures` are the parts of the input that the answer does not consider, and why."""

    answer: str
    failures: list[Failure]
    parts: int
    report: RunReport


class State(TypedDict, total=False):
    """All channels; the input lasts until its parts are made, so that none is mixed with the next one of the thread."""

    question: str
    documents: Annotated[Any, EphemeralValue]
    text: Annotated[str | None, EphemeralValue]
    level: int
    outcomes: Annotated[list[Outcome], operator.add]
    waiting: list[Part]  # tried again when another one shows that the provider answers
    answer: str
    failures: list[Failure]
    parts: int
    report: RunReport


def _node(name: str, calls_of: Callable[[Any, RunnableConfig], Work[Any]]) -> Runnable[Any, Any]:
    def do(values: dict[str, Any], config: RunnableConfig) -> Any:
        return run(calls_of(values, config))

    async def ado(values: dict[str, Any], config: RunnableConfig) -> Any:
        return await arun(calls_of(values, config), aside=True)

    return RunnableLambda(do, afunc=ado, name=name)


class _Nodes:
    def __init__(self, model: Runnable[Any, Any], parts: PartSplitter, *, sub_questions: bool) -> None:
        self._model, self._parts, self._sub_questions = model, parts, sub_questions

    def split(self, state: State, config: RunnableConfig) -> Work[Any]:
        """Cut the input into parts and send them; it leaves the state: each further checkpoint would hold it again."""
        question = state.get("question")
        if not isinstance(question, str) or not question.strip():
            raise ConfigError(f"question={brief(question)}: pass what is to be answered from the documents, as a str")
        chunks = _chunks_of(state)
        report: RunReport = {**no_counts(), "parts": [], "sub_questions": []}
        if self._sub_questions:
            report["sub_questions"] = yield from self._split_question(question, config, report)
        works = self._parts.of_documents(question, chunks, report, report["sub_questions"])
        report["parts"] = [len(works)]
        _announce_level(0, len(works), cuts=len(report["cuts"]), sub_questions=len(report["sub_questions"]))
        update = {"level": 0, "parts": len(works), "waiting": [], "failures": [], "report": report}
        return Command(update={**update, "outcomes": Overwrite([])}, goto=_sends(works))

    def _split_question(self, question: str, config: RunnableConfig, report: RunReport) -> Work[Any]:
        """The sub-questions; none where it asks one thing, or where they are so long that no room is left.

        The model is not asked where the request for them would be too large, and not before it is sure that the
        question leaves room for parts, so that the call is worth its price.
        """
        self._parts.document_room(question)
        request, reply = _split_request(question), None
        if not self._parts.over_by(request):
            reply = yield from self._reply(request, config)
            report["calls"] = 1
            report["input_tokens"], report["output_tokens"] = _usage_of(reply)
        found = _questions_in(question, reply)
        try:
            for each in found:
                self._parts.document_room(question, each)
        except BudgetExceededError:
            reason = "the sub-questions leave no room for documents beside the question"
            log.warning("decompose.question_unsplit", reason=reason)
            return []
        return list(found) if len(found) > 1 else []

    def _reply(self, request: list[AnyMessage], config: RunnableConfig, *, is_last: bool = False) -> Work[Any]:
        config = config if is_last else merge_configs(config, CALL_CONFIG)
        return (yield from _asked(self._model, request, config, config.get("configurable", {}).get(ROOM)))

    def answer(self, work: Part, config: RunnableConfig) -> Work[Any]:
        """Ask about one part, and about smaller ones in its place when it is refused as too large.

        When one that cannot become smaller is refused, too, its size is not the reason: the rest is not sent. What else
        fails is given up alone; the last exception leaves the graph when there must be an answer and is none.
        """
        waiting, outcome = [work], _outcome(work["part"])
        last_error: Exception | None = None
        while waiting:
            part = waiting.pop()
            request = self._parts.request_of(part)
            reply = yield from self._reply(request, config, is_last=work["must_answer"])
            outcome["calls"] += 1
            error = reply if isinstance(reply, Exception) else _take(reply, part, outcome)
            if error is None:
                continue
            rest = [part]
            is_stated = classify_overflow(error) is not None
            if is_stated or isinstance(error, BudgetExceededError | NoModelFitsError):
                outcome["refused"] += 1
                found = self._parts.smaller(part, outcome)
                waiting += found[::-1]
                if found:
                    continue
                rest, waiting = [part, *waiting[::-1]], []
            outcome["failures"].append(_failure(error, rest))
            log_failure("decompose.part_failed", error, level=work["level"], part=work["part"])
            last_error = error
        if not outcome["answers"]:
            if work["must_answer"] and last_error is not None:
                raise last_error
            outcome = {**outcome, "cuts": [], "clamped": [], "unanswered": work}  # tried again as it was
        _announce_part(work, outcome)
        return {"outcomes": [outcome]}

    def collect(self, state: State) -> Command[Any]:
        """Wait for the parts of a level; return the answer, or send the answers to `reduce`.

        When every part failed, the first one is tried again on its own, and what it raises leaves the graph: the
        thread can be resumed. Once it is answered, the others are tried again, too.
        """
        outcomes = sorted(state["outcomes"], key=lambda outcome: outcome["part"])
        if waiting := state["waiting"]:
            return Command(update={"waiting": []}, goto=[Send(_node_of(work), work) for work in waiting])
        report = _added(state["report"], outcomes)
        tried = [outcome for outcome in outcomes if outcome["calls"]]
        if tried and not any(outcome["answers"] for outcome in tried):
            first, *others = [outcome["unanswered"] for outcome in tried if outcome["unanswered"]]
            kept = [outcome for outcome in outcomes if not outcome["calls"]]
            update = {"waiting": others, "outcomes": Overwrite(kept), "report": report}
            return Command(update=update, goto=[Send(_node_of(first), {**first, "must_answer": True})])
        answers = [answer for outcome in outcomes for answer in outcome["answers"]]
        failures = [*state["failures"], *(failure for outcome in outcomes for failure in outcome["failures"])]
        if len(answers) > 1:
            return self._combine(state, answers, failures, report)
        final = {"answer": answers[0]["text"], "failures": failures, "report": report, "outcomes": Overwrite([])}
        return Command(update=final, goto=END)

    def _combine(
        self, state: State, answers: list[PartAnswer], failures: list[Failure], report: RunReport
    ) -> Command[Any]:
        level, before = state["level"] + 1, len(report["clamped"])
        asked_about, kept = list[Part](), list[Outcome]()
        for work in self._parts.of_answers(state["question"], level, answers, report):
            first, *others = work["chunks"]
            if others:
                asked_about.append(work)
            else:  # an answer that is alone in its part goes to the next level as it is
                covers = first.get("covers", [])
                answer = PartAnswer(text=first["text"], sub_question=work["sub_question"], covers=covers)
                kept.append(_outcome(work["part"], answer))
        report["parts"] = [*report["parts"], len(asked_about)]
        _announce_level(level, len(asked_about), clamped=len(report["clamped"]) - before)
        update = {"failures": failures, "report": report, "level": level, "outcomes": Overwrite(kept)}
        return Command(update=update, goto=_sends(asked_about))


def _chunks_of(state: State) -> list[Chunk]:
    documents: Any = state.get("documents")
    text = state.get("text")
    if (documents is None) == (text is None):
        raise ConfigError("the input needs either documents or text, and only one of them")
    if text is None and not isinstance(documents, list | tuple):
        raise ConfigError(f"documents={brief(documents)}: pass a list of Documents or texts, or pass text=")
    chunks = [chunk_of(number, document) for number, document in enumerate(documents if text is None else [text])]
    if not any(chunk["text"].strip() for chunk in chunks):
        raise ConfigError(f"the {len(chunks)} documents have no text: there is nothing to answer from")
    return chunks


def _sends(works: list[Part]) -> list[Send]:
    """The sends of a level; a part that is the only one has to be answered."""
    return [Send(_node_of(work), {**work, "must_answer": len(works) == 1}) for work in works]


def _node_of(work: Part) -> str:
    return "reduce" if work["level"] else "map"


def _take(reply: Any, part: Part, outcome: Outcome) -> Exception | None:
    """Note the answer in a reply, which is a message or its text, and its usage; return an error when there is none."""
    input_tokens, output_tokens = _usage_of(reply)
    outcome["input_tokens"] += input_tokens
    outcome["output_tokens"] += output_tokens
    metadata = reply.response_metadata if isinstance(reply, AIMessage) else {}
    outcome["cut_off"] += any(str(metadata.get(key, "")).lower() in LENGTH_STOPS for key in STOP_KEYS)
    text = str(reply.text if isinstance(reply, BaseMessage) else reply).strip()
    if not text:
        return ContextWindowError(
            "the model returned no text: check its output limit, reasoning budget and safety filters"
        )
    covers = places_of(part["chunks"])
    outcome["answers"].append(PartAnswer(text=text, sub_question=part["sub_question"], covers=covers))
    return None


def _usage_of(reply: Any) -> tuple[int, int]:
    """The input and output tokens that a reply reports; 0 where it does not."""
    usage = reply.usage_metadata if isinstance(reply, AIMessage) else None
    return (usage["input_tokens"], usage["output_tokens"]) if usage else (0, 0)


def _failure(error: Exception, works: list[Part]) -> Failure:
    """The report of parts that are given up, as one."""
    return Failure(
        level=works[0]["level"],
        part=works[0]["part"],
        sub_question=works[0]["sub_question"],
        chunks=places_of(chunk for work in works for chunk in work["chunks"]),
        error=f"{type(error).__name__}: {error}"[:LONGEST_ERROR_CHARS],
    )


def _outcome(part: int, *answers: PartAnswer) -> Outcome:
    return Outcome(**no_counts(), part=part, answers=[*answers], failures=[], unanswered=None)


def _added(report: RunReport, outcomes: Sequence[Mapping[str, Any]]) -> RunReport:
    """The report with what a level took; cuts are in the order of the input, one for all sub-questions."""
    added: dict[str, Any] = {**report}
    for outcome in outcomes:
        added |= {name: added[name] + outcome[name] for name in no_counts()}
    by_place = {(cut["document"], cut["at"]): cut for cut in added["cuts"]}
    return cast("RunReport", {**added, "cuts": [by_place[place] for place in sorted(by_place)]})


def _announce_part(work: Part, outcome: Outcome) -> None:
    place = {"level": work["level"], "part": work["part"]}
    if outcome["refused"]:
        log.warning("decompose.part_split", **place, refused=outcome["refused"])
    facts = {"parts": work["parts"], "failed": bool(outcome["failures"]), "refused": outcome["refused"]}
    _stream("decompose.part_done", **place, **facts)


def _announce_level(level: int, parts: int, **facts: Any) -> None:
    log.info("decompose.level_started", level=level, parts=parts, **facts)
    _stream("decompose.level_started", level=level, parts=parts, **facts)


def _stream(event: str, **facts: Any) -> None:
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):  # called outside a graph: there is no stream
        return
    writer({"type": event, **facts})


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

    Raises:
        ConfigError: the question is no text.
    """
    return _questions_in(question, run(_asked(model, _split_request(question), config)) if model else None)


async def asplit_question(
    question: str, model: Runnable[Any, Any] | None = None, *, config: RunnableConfig | None = None
) -> tuple[str, ...]:
    """Like `split_question`, awaiting the model."""
    return _questions_in(question, await arun(_asked(model, _split_request(question), config)) if model else None)


def _asked(
    model: Runnable[Any, Any],
    request: list[AnyMessage],
    config: RunnableConfig | None,
    place: AbstractContextManager[Any] | None = None,
) -> Work[Any]:
    """The reply of a model, or the exception that it raised; only an interrupt of the graph goes through."""

    def invoke() -> Any:
        with place or nullcontext():  # one of the calls that may run at a time
            return model.invoke(request, config)

    try:
        return (yield Wait(invoke, lambda: model.ainvoke(request, config)))
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  # whoever asks decides what a failure means
        return error


def _split_request(question: str) -> list[AnyMessage]:
    return [SystemMessage(INSTRUCTIONS), HumanMessage(question)]


def _questions_in(question: str, reply: Any) -> tuple[str, ...]:
    """The questions in a reply of a model, or by their marks when there is none, or none that can be used."""
    if reply is None:
        return _by_marks(expect(question, str, "question", "the question as a text"))
    text = str(reply.text if isinstance(reply, BaseMessage) else reply)
    array = text[text.find("[") : text.rfind("]") + 1]  # models put a fence or a sentence around it
    try:
        found = tuple(dict.fromkeys(_REPLY.validate_json(array)))
    except ValueError:
        log.warning("decompose.question_unsplit", reason="unusable reply", digest=digest_of(text))
        log_text("decompose.question_unsplit", text)
        return _by_marks(question)
    return found if len(found) > 1 else (question.strip(),)


def _by_marks(question: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in _QUESTION_END.split(question) if part.strip())
    is_several = 1 < len(found) <= MAX_SUB_QUESTIONS and found[-1].endswith(("?", "\uff1f", "\u061f"))
    # Other scripts write sentences without spaces.
    is_short = any(part.isascii() and len(part.split()) < LEAST_WORDS for part in found)
    return found if is_several and not is_short else (question.strip(),)
