"""The engine inside langchain's `create_agent`: one middleware, and the state that keeps its history cheap."""

from langchain_ctxwin.agent.middleware import ContextAgentState, ContextWindowMiddleware

__all__ = ["ContextAgentState", "ContextWindowMiddleware"]
