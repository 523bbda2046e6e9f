"""What does a run of the map-reduce graph keep in its checkpoints?

The input as it was passed until its parts are made, then JSON only: each part with its text, and answers. No level, and
no further part, adds another copy of the text.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from langchain_core.documents import Document
from langgraph.channels import EphemeralValue

from langchain_ctxwin.decompose.chunks import Chunk, Place
from langchain_ctxwin.decompose.splitting import Cut

Stage = Literal["map", "reduce"]
"""The two nodes that call the model."""


class Work(TypedDict):
    """One part of the work, as it is sent to a node."""

    run: str
    level: int
    """0 for parts of the input, 1 for their answers, and so on."""
    part: int
    """Number of the part, from 1, in the order of the input."""
    parts: int
    question: str
    sub_question: str
    """The part of the question that this is about; empty for all of it."""
    chunks: list[Chunk]
    must_answer: bool
    """A failure leaves the graph as the provider's own exception: there is no other part that could answer."""


class Answer(TypedDict):
    """What a model wrote about one part."""

    text: str
    sub_question: str
    covers: list[Place]


class Failure(TypedDict):
    """A part that got no answer."""

    level: int
    part: int
    sub_question: str
    chunks: list[Place]
    """The places of the input that this answer does not consider."""
    error: str


class Clamped(TypedDict):
    """An answer that was shortened in its middle before it was combined with others."""

    level: int
    answer: int
    tokens: int
    kept_tokens: int


class Outcome(TypedDict):
    """All that became of one part."""

    part: int
    answers: list[Answer]
    failures: list[Failure]
    calls: int
    refused: int
    """Calls that the provider refused as too large; their parts were split."""
    input_tokens: int
    output_tokens: int
    cut_off: int
    """Answers that ended because their output limit was reached."""
    cuts: list[Cut]
    clamped: list[Clamped]
    unanswered: NotRequired[Work]
    """The work itself, as long as it may have to be tried again."""


class Report(TypedDict):
    """How the answer came about, in numbers."""

    parts: list[int]
    """Parts per level; the first is the input's."""
    calls: int
    refused: int
    input_tokens: int
    """Input of all calls, as far as the provider reports it; `output_tokens` likewise."""
    output_tokens: int
    cut_off: int
    cuts: list[Cut]
    clamped: list[Clamped]
    shortened_sources: list[int]
    """Documents, by number from 0, whose metadata took so much of the room that less of it was shown."""
    sub_questions: list[str]


class MapReduceInput(TypedDict):
    """What a run begins with: `documents` or `text`."""

    question: str
    documents: NotRequired[Sequence[Document | str | dict[str, Any]]]
    text: NotRequired[str]


class MapReduceOutput(TypedDict):
    """What a run returns."""

    answer: str
    failures: list[Failure]
    """Parts of the input that the answer does not consider, and why."""
    parts: int
    report: Report


class State(TypedDict, total=False):
    """All channels; the input lasts until its parts are made, so that none is mixed with the next one of the thread."""

    question: str
    documents: Annotated[Any, EphemeralValue]
    text: Annotated[str | None, EphemeralValue]
    run: str
    level: int
    outcomes: Annotated[list[Outcome], operator.add]
    waiting: list[Work]
    """Parts that are tried again when another one shows that the provider answers."""
    answer: str
    failures: list[Failure]
    parts: int
    report: Report
