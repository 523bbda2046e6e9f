"""What an application and its agent say to compactions: a hook before them, and the tool `compact_context`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool

from langchain_ctxwin.core.compaction import Compaction, left_behind
from langchain_ctxwin.core.events import CompactionEvent, NoticeEvent
from langchain_ctxwin.core.notes import COMPACT_KEY, lines_to_keep
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.errors import BudgetExceededError, ConfigError, expect
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.util.log import log

BeforeCompaction = Callable[[Window, Compaction], Compaction | None]
"""Asked about a compaction: returns it, what `Compaction.spare` or `Compaction.with_lines` makes of it, or None."""


Plan = Callable[[Window], Compaction | None]


def agreed(
    hook: BeforeCompaction | None,
    window: Window,
    plan: Plan,
    *,
    limit: int,
    is_hard: bool,
) -> Compaction | None:
    """Return what is planned for a request, as far as the application agrees.

    What a hook wishes is planned anew. Where that does not fit the limit, and the plan without it does, the wish is
    passed over with a warning: a request that does not fit helps nobody. With `is_hard` it does not fit as it is, and
    something has to leave.

    Raises:
        ConfigError: the hook returned neither a compaction nor None.
    """
    compaction = plan(window)
    if hook is None or compaction is None:
        return compaction
    answer = hook(window, compaction)
    if answer is None:
        return (
            _ignored(compaction, "the request does not fit, so something has to leave")
            if is_hard
            else None
        )
    if not isinstance(answer, Compaction):
        raise ConfigError(
            f"before_compaction returned {answer!r:.80}: return the compaction, compaction.spare(...), "
            "compaction.with_lines(...), or None"
        )
    if not answer.spared and not answer.lines:
        return replace(compaction, reason=answer.reason)
    try:
        changed = plan(_with_wishes(window, answer))
    except BudgetExceededError:
        return _ignored(
            compaction, "with the spared messages the request cannot be made to fit"
        )
    fits = changed is None or changed.upper_after <= max(limit, compaction.upper_after)
    return (
        changed
        if fits
        else _ignored(
            compaction, "with the spared messages and lines the request does not fit"
        )
    )


def report_compaction(
    reporter: Reporter,
    compaction: Compaction,
    window: Window,
    after: Window,
    *,
    seconds: float,
) -> None:
    """Report what a compaction changed that took so long; nothing where it came to nothing."""
    if after.session.compactions <= window.session.compactions:
        return
    messages, model, limit = (
        window.parts.messages,
        window.parts.model,
        window.input_limit,
    )
    left_indexes = left_behind(compaction.after, window.session.view)
    event = CompactionEvent(
        kind=compaction.kind,
        reason=compaction.reason,
        tokens_before=compaction.tokens_before,
        tokens_after=after.total_tokens,
        model=model,
        actions=compaction.actions,
        input_limit=limit,
        duration_seconds=round(seconds, 6),
        left_messages=len(left_indexes),
        left_results=sum(
            isinstance(messages[index], ToolMessage) for index in left_indexes
        ),
        compactions=after.session.compactions,
        quoting={"summary": after.summary} if after.summary else {},
    )
    reporter.emit(event)
    before, clamped = window.view.clamped, after.view.clamped
    cut = after.clamped_newest()
    new = {
        name: sizes for name, sizes in cut.items() if before.get(name) != clamped[name]
    }
    if new:  # what was just said, or just found, is not shown whole
        about = {"shown_tokens": new, "input_limit": limit}
        reporter.emit(NoticeEvent(model=model, notice="newest_clamped", about=about))


def _ignored(compaction: Compaction, reason: str) -> Compaction:
    log.warning("compaction.hook_ignored", reason=reason, compaction=compaction.reason)
    return compaction


def _with_wishes(window: Window, answer: Compaction) -> Window:
    """The request with the spared messages as pins of this one compaction, and lines for its record."""
    parts, messages = window.parts, window.parts.messages
    positions = {message_id(messages, index): index for index in range(len(messages))}
    unknown = [key for key in answer.spared if key not in positions]
    if unknown:  # what we added to the request ourselves has an id, too
        _ignored(answer, f"the history has no message {', '.join(map(repr, unknown))}")
    last = message_id(messages, len(messages) - 1)
    lines = (line for text in answer.lines for line in lines_to_keep(text, last))
    spared = {positions[key] for key in answer.spared if key in positions}
    return replace(
        window,
        parts=replace(parts, pins=parts.pins | spared, keeps=(*parts.keeps, *lines)),
    )


DESCRIPTION = (
    "Make room in your context window at the end of a phase of work: older messages leave your view before your next "
    "step, and short notes of them stay. Say in `keep` what you still need word for word: decisions, identifiers, "
    "paths, open tasks."
)

ANSWER = "Older messages leave your view now. What you asked to keep stays in the notes above the newest messages."

Keep = Annotated[str, "What must stay, one fact per line."]


def create_compact_tool(
    *, name: str = "compact_context", description: str = DESCRIPTION
) -> BaseTool:
    """Return a tool with which an agent compacts its own view at the end of a phase, naming what to keep.

    The request after the call is compacted down to the low-water mark (`ContextConfig.keep`), although it fits; when it
    is as small as that already, nothing leaves. Each line of `keep` becomes a line of the record that stays through
    later compactions. One call compacts once, also after a resume.

    Args:
        name: how the model calls the tool.
        description: what the model is told of it.

    Raises:
        ConfigError: the name or the description is not a text, or empty.

    Examples:
        ```python
        agent = create_context_agent(
            model, [search, create_compact_tool()], checkpointer=InMemorySaver()
        )
        ```
    """
    expect(
        name, str if name else (), "name", "the name by which the model calls the tool"
    )
    text = expect(
        description,
        str,
        "description",
        "the text that tells the model what the tool does",
    )
    expect(
        text,
        object if text.strip() else (),
        "description",
        "the text that tells the model what the tool does",
    )

    def compact_context(
        call_id: Annotated[str, InjectedToolCallId], keep: Keep = ""
    ) -> ToolMessage:
        return ToolMessage(
            ANSWER,
            tool_call_id=call_id,
            name=name,
            additional_kwargs={COMPACT_KEY: keep},
        )

    return StructuredTool.from_function(
        compact_context, name=name, description=description, parse_docstring=False
    )
