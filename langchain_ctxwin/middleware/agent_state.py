"""`ContextAgentState`: what an agent remembers between steps for the middleware."""

from __future__ import annotations

from typing import Annotated, Any, Required, TypeVar

from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.messages import AnyMessage

from langchain_ctxwin.flow.channel import MessagesDeltaChannel

T = TypeVar("T")
Hidden = Annotated[T, PrivateStateAttr]
"""A state key that is checkpointed, and neither taken from a caller nor returned to one."""


class ContextKeys(AgentState[Any], total=False):
    """The state that the middleware adds to an agent's own: the session keys of `ContextState`, all of them hidden."""

    context_summary: Hidden[str]
    """The one live summary of what left the view."""

    context_record: Hidden[dict[str, Any]]
    """Lines of what left the view, and how much left."""

    context_view: Hidden[dict[str, Any]]
    """How the history is shown; empty shows all of it."""

    context_pending: Hidden[dict[str, Any]]
    """The summary that is due or ready."""

    context_counts: Hidden[dict[str, Any]]
    """What was learned about token counts and limits."""

    context_tools: Hidden[list[str]]
    """Names of the selected tools, in the order in which requests show them."""

    context_model: Hidden[dict[str, Any]]
    """The candidate that the conversation's requests go to, and why."""

    context_guard: Hidden[dict[str, Any]]
    """Compactions so far, and why automatic ones stopped."""

    context_report: Hidden[dict[str, Any]]
    """The last measure of the next request, in tokens per region."""


class ContextAgentState(ContextKeys, total=False):
    """State of an agent that keeps its full history at linear storage cost: pass it as `state_schema`.

    A middleware cannot replace the `messages` channel of an agent, only the agent's own schema can. What
    `ContextState` says about pruning checkpoints holds here, too.

    ```python
    agent = create_agent(model, tools, middleware=[ContextWindowMiddleware()], state_schema=ContextAgentState)
    ```
    """

    messages: Required[Annotated[list[AnyMessage], MessagesDeltaChannel()]]
    """Full history; compaction never edits it."""


SESSION_KEYS = tuple(key for key in ContextKeys.__annotations__ if key not in AgentState.__annotations__)
"""The keys that are ours."""
