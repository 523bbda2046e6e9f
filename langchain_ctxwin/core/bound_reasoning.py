"""Reasoning that is tied to all that precedes it (Anthropic, preserved thinking), and blocks that keep it valid.

    another view changes what precedes an answer  ->  all reasoning until then is left out (`unbound_under`)
    a provider's own block stands for just that   ->  reasoning behind it stays (`swaps_prefix`)

Positions are those of the history. What else reasoning is tied to, such as the system prompt, is `Request.tied_to`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.calls import is_user, result_ids
from langchain_ctxwin.core.native import block_message, has_bound_reasoning
from langchain_ctxwin.core.parts import Parts
from langchain_ctxwin.core.provider_rules import Rules
from langchain_ctxwin.core.session import Session
from langchain_ctxwin.core.view import View, message_id


def unbound_under(parts: Parts, session: Session, view: View, unbound: int) -> int:
    """Return the position up to which a view leaves reasoning out; the stored view does so up to `unbound`."""
    if view == session.view or not parts.rules.binds_reasoning:
        return unbound
    start, messages = parts.start_of(view), parts.messages
    if swaps_prefix(parts, session, view):
        return max(unbound, start)
    stop = unbound_before(messages, len(messages), parts.rules)
    visible_indexes = parts.visible_indexes(view, stop)
    newest = (
        i + 1 for i in reversed(visible_indexes) if has_bound_reasoning(messages[i])
    )
    return max(unbound, next(newest, 0))


def unbound_before(messages: Sequence[AnyMessage], stop: int, rules: Rules) -> int:
    """Return the position up to which reasoning is left out when the prefix of the first `stop` messages changes.

    The step whose calls wait for an answer keeps its reasoning where the provider would refuse it without.
    """
    if not rules.calls_need_reasoning or not stop or not result_ids(messages[stop - 1]):
        return stop
    answers = (i for i in reversed(range(stop)) if isinstance(messages[i], AIMessage))
    return next(answers, stop)


def swaps_prefix(parts: Parts, session: Session, view: View) -> bool:
    """Return whether a new block of the provider stands in a view for just what preceded the rest.

    Reasoning behind it then stays valid: what is kept follows directly, as it was sent, and begins with a turn of the
    other role. Blanks at the end of an answer are not sent where a request ends with it.
    """
    old, start = session.view, parts.start_of(view)
    is_new = view.block != old.block and block_of(parts, view) is not None
    if not is_new or not parts.rules.binds_reasoning:
        return False
    is_whole = view.covered is not None and start == view.covered.index + 1
    if not is_whole or start <= parts.start_of(old):
        return False
    last, first = parts.messages[start - 1 : start + 1]
    is_answer = isinstance(last, AIMessage)
    is_joined = is_answer == isinstance(first, AIMessage)
    is_cut = is_answer and last.text != last.text.rstrip()
    has_record = (
        block_of(parts, old) is not None
        and record_index(parts, session, parts.start_of(old)) >= start
    )
    is_edited = _edits(parts, old, start) != _edits(parts, view, start)
    return not (is_joined or is_cut or has_record or is_edited)


def _edits(parts: Parts, view: View, start: int) -> tuple[Any, ...]:
    """The edits of a view to the messages from a position on."""
    messages = parts.messages
    visible_ids = {message_id(messages, index) for index in range(start, len(messages))}
    edits = (view.clamped, parts.without_media(view))
    return (
        view.cleared & visible_ids,
        *({key: edit[key] for key in visible_ids & edit.keys()} for edit in edits),
    )


def block_of(parts: Parts, view: View) -> AIMessage | None:
    """Return the summary block that this provider wrote on demand, where its history has none."""
    rules = parts.rules
    if view.block is None or rules.compacts_itself:
        return None
    block = block_message(view.block, rules.provider)
    return block if block is None or parts.lead(view) is None else None


def record_index(parts: Parts, session: Session, start: int) -> int:
    """Return the position before which pins and record stand where a provider's own block begins the request.

    It is that of the question that was the newest message at the latest compaction, or behind a newest result; without
    a compaction it is the start of the view.
    """
    messages, since = parts.messages, session.since
    index = since.find(messages) if since else None
    if index is None:
        return start
    return index if is_user(messages[index]) else index + 1
