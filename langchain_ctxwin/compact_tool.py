"""The tool `compact_context`: an agent makes room in its own window, and says what it still needs."""

from __future__ import annotations

from typing import Annotated

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool

from langchain_ctxwin.core.notes import COMPACT_KEY
from langchain_ctxwin.errors import expect

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
        description: what the model reads about the tool.

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
