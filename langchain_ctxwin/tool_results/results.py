"""The two things that happen to large results: one is kept and its first page shown; a page of it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.daemon import in_daemon
from langchain_ctxwin.protocols import ResultStore
from langchain_ctxwin.tool_results.budget import MIN_TOKENS, Call, Prices
from langchain_ctxwin.tool_results.contents import Content, content_of, is_blocks, is_media, stays_blocks
from langchain_ctxwin.tool_results.cursor_form import parsed
from langchain_ctxwin.tool_results.cursors import CursorSigner, args_digest
from langchain_ctxwin.tool_results.pages import Place
from langchain_ctxwin.tool_results.reading import Answer, Desk, Question
from langchain_ctxwin.tool_results.record import Record, key_of
from langchain_ctxwin.tool_results.reduction import words_of
from langchain_ctxwin.tool_results.vault import Vault

MEDIA_SHARE = 0.5
"""Part of a result's budget that media may take; the rest tells what there is."""

Signers = Callable[[float], CursorSigner]
T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown of a large result."""

    content: str | list[Any]
    """Content of the message."""

    answer: Answer

    @property
    def facts(self) -> dict[str, Any]:
        """What the notes say, for programs."""
        return {
            "result_chars": len(self.answer.record.text),
            "rows": len(self.answer.layout.rows),
            "next_cursor": self.answer.following or None,
            "left_out": list(self.answer.page.shown.left_out),
            "shortened": list(self.answer.page.shown.shortened),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One large result on its way."""

    call: Call
    content: Content
    media: tuple[Any, ...]
    media_tokens: int
    result_id: str
    record: Record

    @property
    def key(self) -> str:
        return key_of(self.call.thread, self.result_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A kept result that a cursor was shown for."""

    record: Record
    call: Call
    desk: Desk
    place: Place


class Results:
    """Keeps large results and shows their pages; immutable, may be used by several threads at once.

    Key init args:
        store: where results are kept.
        signers: makes the signer for a time to live in seconds.
        prices: prices what is shown.
        new_id: makes the id of a result; ids must not be guessable, because they also mark where data ends.
    """

    def __init__(self, store: ResultStore, signers: Signers, prices: Prices, new_id: Callable[[], str]) -> None:
        self._vault = Vault(store)
        self._signers = signers
        self._prices = prices
        self._new_id = new_id

    def shown(self, call: Call, content: Any) -> View | None:
        """Return what is shown of a result, None when it fits as it is. What is left out is kept before that."""
        if self._fits(call, content):
            return None
        task = self._task(call, content)
        answer = self._first(task)
        if answer.is_everything:
            return self._view(task, answer, is_stored=False)
        is_stored = self._vault.put(task.key, answer.record.to_bytes(), call.config.ttl_seconds)
        return self._view(task, answer if is_stored else self._first(task, is_stored=False), is_stored=is_stored)

    async def ashown(self, call: Call, content: Any) -> View | None:
        """Like `shown`; work on large results is done beside the event loop."""
        # A text is priced by a sample; anything else may have to be printed first.
        is_text = isinstance(content, str)
        if self._fits(call, content) if is_text else await _beside(lambda: self._fits(call, content)):
            return None
        task = await _beside(lambda: self._task(call, content))
        answer = await _beside(lambda: self._first(task))
        if answer.is_everything:
            return self._view(task, answer, is_stored=False)
        packed = await _beside(answer.record.to_bytes)
        is_stored = await self._vault.aput(task.key, packed, call.config.ttl_seconds)
        if not is_stored:
            answer = await _beside(lambda: self._first(task, is_stored=False))
        return self._view(task, answer, is_stored=is_stored)

    def read(self, cursor: str, question: Question, thread: str, call_for: Callable[[str], Call]) -> Answer:
        """Keep a result for longer, and return what is asked of it.

        Args:
            cursor: as it was shown.
            question: what to read.
            thread: tenant and thread of the reader.
            call_for: describes a call of the tool with this name that is made now.

        Raises:
            CursorError: the cursor is no longer good, or never was.
            ConfigError: the question cannot be asked.
        """
        key = key_of(thread, parsed(cursor).result_id)
        kept = self._vault.get(key)
        asked = self._asked(cursor, kept, call_for)
        is_extended = self._vault.put(key, kept, asked.call.config.ttl_seconds)
        return self._answered(asked, question, is_extended=is_extended)

    async def aread(self, cursor: str, question: Question, thread: str, call_for: Callable[[str], Call]) -> Answer:
        """Like `read`, without blocking the event loop."""
        key = key_of(thread, parsed(cursor).result_id)
        kept = await self._vault.aget(key)
        asked = await _beside(lambda: self._asked(cursor, kept, call_for))
        is_extended = await self._vault.aput(key, kept, asked.call.config.ttl_seconds)
        return await _beside(lambda: self._answered(asked, question, is_extended=is_extended))

    def _fits(self, call: Call, content: Any) -> bool:
        return self._prices.content(content) <= call.budget_tokens

    def _task(self, call: Call, content: Any) -> _Task:
        read, config = content_of(content), call.config
        media = self._media_that_fits(call, content)
        record = Record(
            tool=call.tool,
            args_digest=args_digest(call.args),
            thread=call.thread,
            text=read.text,
            kind=read.kind,
            words=words_of(call.texts),
            keywords=config.keywords,
            extraction=config.extraction,
        )
        return _Task(
            call=call,
            content=read,
            media=media.kept,
            media_tokens=media.tokens,
            result_id=self._new_id(),
            record=record,
        )

    def _media_that_fits(self, call: Call, content: Any) -> Fit[Any]:
        media = [block for block in content if is_media(block) and stays_blocks([block])] if is_blocks(content) else []
        budget = int(MEDIA_SHARE * call.budget_tokens)
        return take_while_fits(media, budget, lambda block: self._prices.content([block]), on_overflow="skip")

    def _first(self, task: _Task, *, is_stored: bool = True) -> Answer:
        desk = self._desk(task.result_id, task.call)
        tokens = task.call.budget_tokens - task.media_tokens
        return desk.first(task.content, task.record, task.call.config, tokens, is_stored=is_stored)

    def _asked(self, cursor: str, kept: bytes, call_for: Callable[[str], Call]) -> _Asked:
        """What a cursor stands for; nothing is kept for longer because of one that is not good."""
        record = Record.from_bytes(kept)
        call = call_for(record.tool)
        desk = self._desk(parsed(cursor).result_id, call)
        return _Asked(record=record, call=call, desk=desk, place=desk.place(record, cursor))

    def _answered(self, asked: _Asked, question: Question, *, is_extended: bool) -> Answer:
        call = asked.call
        tokens = min(call.budget_tokens, max(MIN_TOKENS, question.tokens or call.budget_tokens))
        limited = question.limited_to(call.config.page_rows)
        return asked.desk.answer(asked.record, asked.place, limited, tokens, is_extended=is_extended)

    def _desk(self, result_id: str, call: Call) -> Desk:
        signer = self._signers(call.config.ttl_seconds)
        ttl_seconds = min(signer.ttl_seconds, call.config.ttl_seconds)
        return Desk(result_id, signer, self._prices.text, ttl_seconds=ttl_seconds)

    def _view(self, task: _Task, answer: Answer, *, is_stored: bool) -> View:
        _log.info(
            "tool_result.reduced",
            tool=task.call.tool,
            chars=len(task.content.text),
            shown_chars=len(answer.text),
            budget_tokens=task.call.budget_tokens,
            stored=is_stored,
        )
        content = [{"type": "text", "text": answer.text}, *task.media] if task.media else answer.text
        return View(content=content, answer=answer)


async def _beside(work: Callable[[], T]) -> T:
    """Run work that takes milliseconds or more in a thread, so that the event loop goes on."""
    done: T = await asyncio.wrap_future(in_daemon(work))
    return done
