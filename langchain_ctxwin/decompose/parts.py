"""Which parts does the work have at each level, and how does a part become smaller that does not fit?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.decompose.chunks import LONGEST_CITED_CHARS, Chunk
from langchain_ctxwin.decompose.citing import cited_within
from langchain_ctxwin.decompose.prompts import Prompts, escaped, opening, tag_of
from langchain_ctxwin.decompose.shortening import shortened
from langchain_ctxwin.decompose.sizes import Sizes
from langchain_ctxwin.decompose.splitting import Cut, Frame, halves, split_chunks
from langchain_ctxwin.decompose.state import Answer, Clamped, Work
from langchain_ctxwin.errors import BudgetExceededError

LEAST_PART_TOKENS = 64
"""A part that is refused although it is smaller than this is not refused for its size."""

LEAST_PIECE_TOKENS = LEAST_PART_TOKENS // 2
"""A smaller piece of a text is not worth a call."""

MOST_FRAME_SHARE = 0.2
"""Part of the room for what is shown around one chunk: sources are there to be cited, the text is what is read."""

LEAST_ROOM_SHARE = 0.5
"""Part of the room that another try leaves at least: twice what may be shown around a chunk."""

LEAST_HALVED_ANSWERS = 4
"""Fewer answers are shortened instead: each half has to combine two, or the work would never come to an end."""

SPLITS = 3
"""Tries with a smaller room, before single parts are made smaller, which wastes half of each."""

_LONG_NUMBER = 9_999_999  # stands for numbers that are not known when the rest of a request is priced


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of one level, and what was done to make them fit."""

    works: list[Work]
    cuts: list[Cut] = field(default_factory=list)
    clamped: list[Clamped] = field(default_factory=list)
    shortened_sources: list[int] = field(default_factory=list)
    """Documents whose metadata took too much of the room."""


class Parting:
    """Makes parts whose requests fit."""

    def __init__(self, prompts: Prompts, sizes: Sizes) -> None:
        self._prompts = prompts
        self._sizes = sizes

    def of_documents(self, whole: Work, sub_questions: Sequence[str]) -> Parts:
        """Return the parts of the input: for every sub-question, or for the question itself, the same chunks.

        Raises:
            BudgetExceededError: instructions and question leave no room for documents, or for answers.
        """
        works, cuts, shortened_sources = list[Work](), list[Cut](), set[int]()
        for sub_question in sub_questions or [""]:
            about = _about(whole, sub_question)
            self._room({**about, "level": 1})  # where the answers do not fit later, all calls before would be lost
            found = self._split(about, whole["chunks"])
            works += found.works
            cuts = found.cuts  # the same for every sub-question, or nearly so: the room beside them differs
            shortened_sources.update(found.shortened_sources)
        return Parts(works=_numbered(works), cuts=cuts, shortened_sources=sorted(shortened_sources))

    def of_answers(self, whole: Work, answers: Sequence[Answer]) -> Parts:
        """Return the parts that combine `answers`, fewer than there are; a part of one answer needs no call.

        The answers to one sub-question are combined with each other first. An answer larger than half of the room is
        shortened, so that two always fit.
        """
        works, clamped = list[Work](), list[Clamped]()
        for sub_question, group in _groups(answers):
            about = _about(whole, sub_question)
            room = self._room(about)
            named = [_chunk(number, answer, sub_question) for number, answer in enumerate(group)]
            given = self._cited(about, named, room, self._price)
            chunks = list(self._shortened(about, given, room // 2, clamped))
            parts = split_chunks(chunks, room, self._price, _frame_of(about)).parts
            if len(parts) >= len(chunks) > 1:
                parts = tuple(tuple(chunks[first : first + 2]) for first in range(0, len(chunks), 2))
            found = self._fitted([{**about, "chunks": list(part)} for part in parts])
            works += found.works
            clamped += found.clamped
        return Parts(works=_numbered(works), clamped=clamped)

    def smaller(self, work: Work) -> Parts:
        """Return smaller parts in the place of one that is too large; none when it cannot become smaller."""
        chunks, frame = work["chunks"], _frame_of(work)
        frames = [self._price(frame(chunk)) for chunk in chunks]
        tokens = sum(frames) + sum(self._price(chunk["text"]) for chunk in chunks)
        if tokens < LEAST_PART_TOKENS:
            return Parts(works=[])
        if not work["level"]:
            return self._divided(work, (tokens + max(frames)) // 2)  # each half shows a frame
        if len(chunks) >= LEAST_HALVED_ANSWERS:
            return Parts(works=[{**work, "chunks": list(half)} for half in halves(chunks)])
        clamped = list[Clamped]()
        kept = list(self._shortened(work, chunks, tokens // (2 * len(chunks)), clamped))
        return Parts(works=[{**work, "chunks": kept}] if clamped else [], clamped=clamped)

    def refused(self, work: Work, overflow: ContextOverflow) -> None:
        """Take what a provider said when it refused a part: it holds for the other parts of the run, too."""
        self._sizes.hear(work["run"], overflow)

    def is_known_too_large(self, work: Work) -> bool:
        """True when another part of the run was told a limit that this one exceeds."""
        if self._heard_room(work) is None:
            return False
        return self._sizes.over_by(self.request_of(work), work["run"]) > 0

    def takes(self, request: Sequence[AnyMessage]) -> bool:
        """True when a request of another kind fits."""
        return not self._sizes.over_by(request)

    def request_of(self, work: Work) -> list[AnyMessage]:
        """Return the messages of the call for one part."""
        return self._prompts.request(work)

    def _split(self, about: Work, chunks: Sequence[Chunk]) -> Parts:
        """Split until each request as a whole fits, too: it may cost more than its chunks do one by one."""
        room, price = self._room(about), cache(self._price)  # another try prices hardly anything else
        given, least_room = self._cited(about, chunks, room, price), int(LEAST_ROOM_SHARE * room)
        changed = [one["document"] for one, other in zip(chunks, given, strict=True) if one is not other]
        for _ in range(SPLITS):
            split = split_chunks(given, room, price, _frame_of(about), least_tokens=LEAST_PART_TOKENS)
            works: list[Work] = [{**about, "chunks": list(part)} for part in split.parts]
            over_by = max((self._sizes.over_by(self.request_of(work)) for work in works), default=0)
            if not over_by:
                return Parts(works=works, cuts=list(split.cuts), shortened_sources=changed)
            room = max(least_room, room - over_by)
        fitted = self._fitted(works)
        return Parts(works=fitted.works, cuts=[*split.cuts, *fitted.cuts], shortened_sources=changed)

    def _divided(self, work: Work, room: int) -> Parts:
        """Split one part of the input: in two, or into as many as the limit asks for that the run was told."""
        room = min(room, self._heard_room(work) or room)
        try:
            split = split_chunks(work["chunks"], room, self._price, _frame_of(work), least_tokens=LEAST_PIECE_TOKENS)
        except BudgetExceededError:
            return Parts(works=[])
        works: list[Work] = [{**work, "chunks": list(part)} for part in split.parts]
        return Parts(works=works if len(works) > 1 else [], cuts=list(split.cuts))

    def _cited(self, work: Work, chunks: Sequence[Chunk], room: int, price: WholePrice) -> list[Chunk]:
        """Return the chunks, those with a shorter source that would take more than its share of the room."""
        most_tokens = int(MOST_FRAME_SHARE * room)
        return [cited_within(chunk, most_tokens, price, _frame_of(work)) for chunk in chunks]

    def _fitted(self, works: list[Work]) -> Parts:
        """Make every part smaller whose request as a whole is larger than the sum of its chunks."""
        fitting, cuts, clamped = list[Work](), list[Cut](), list[Clamped]()
        waiting = works[::-1]
        while waiting:
            work = waiting.pop()
            is_single_answer = work["level"] > 0 and len(work["chunks"]) == 1
            found = None if is_single_answer or not self._sizes.over_by(self.request_of(work)) else self.smaller(work)
            if found is None or not found.works:
                fitting.append(work)
                continue
            waiting += found.works[::-1]
            cuts += found.cuts
            clamped += found.clamped
        return Parts(works=fitting, cuts=cuts, clamped=clamped)

    def _shortened(
        self, work: Work, chunks: Sequence[Chunk], most_tokens: int, clamped: list[Clamped]
    ) -> Iterator[Chunk]:
        """Yield the chunks, those shortened that need more than `most_tokens`; `clamped` is told of each."""
        for chunk in chunks:
            room = max(LEAST_PART_TOKENS // 2, most_tokens - self._price(_frame_of(work)(chunk)))
            tokens = self._price(chunk["text"])
            text = chunk["text"] if tokens <= room else shortened(chunk["text"], room, self._price)
            if text != chunk["text"]:
                number, kept = chunk["document"] + 1, self._price(text)
                clamped.append(Clamped(level=work["level"], answer=number, tokens=tokens, kept_tokens=kept))
            yield {**chunk, "text": text}

    def _room(self, work: Work) -> int:
        """Tokens for chunks beside the rest of the request."""
        return self._heard_room(work) or self._sizes.room(self.request_of({**work, "chunks": []}))

    def _heard_room(self, work: Work) -> int | None:
        return self._sizes.heard_room(self.request_of({**work, "chunks": []}), work["run"])

    def _price(self, text: str) -> int:
        return self._sizes.price(escaped(text))


def _about(whole: Work, sub_question: str) -> Work:
    """The work on one sub-question, with numbers of parts that are at least as long as those it will have."""
    return {**whole, "sub_question": sub_question, "part": _LONG_NUMBER, "parts": _LONG_NUMBER}


def _frame_of(work: Work) -> Frame:
    """What is shown around a chunk."""
    tag = tag_of(work)
    return lambda chunk: f"{opening(tag, chunk)}\n\n</{tag}>\n"


def _chunk(number: int, answer: Answer, sub_question: str) -> Chunk:
    """An answer as a chunk; where the answers to several sub-questions are combined, it says which one it answers."""
    named = answer["sub_question"] if answer["sub_question"] != sub_question else ""
    source = {"sub_question": named[:LONGEST_CITED_CHARS]} if named else {}
    return Chunk(document=number, source=source, start=0, text=answer["text"], covers=answer["covers"])


def _groups(answers: Sequence[Answer]) -> list[tuple[str, list[Answer]]]:
    """The answers by sub-question while one of them has several; then all together, for the question itself."""
    groups = [(name, list(group)) for name, group in groupby(answers, key=itemgetter("sub_question"))]
    return groups if any(len(group) > 1 for _, group in groups) else [("", list(answers))]


def _numbered(works: Sequence[Work]) -> list[Work]:
    return [{**work, "part": number, "parts": len(works)} for number, work in enumerate(works, 1)]
