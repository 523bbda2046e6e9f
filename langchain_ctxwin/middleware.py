"""The engine inside langchain's `create_agent`: one middleware, and the state that keeps its history cheap."""

try:
    from langchain_ctxwin.agent.middleware import ContextAgentState, ContextWindowMiddleware
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "langchain":
        raise
    raise ImportError("the middleware needs langchain: pip install 'langchain-ctxwin[agents]'") from error

__all__ = ["ContextAgentState", "ContextWindowMiddleware"]
