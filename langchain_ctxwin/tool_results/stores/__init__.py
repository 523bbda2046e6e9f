"""Where large tool results are kept until they expire: in memory, on a Redis server, or in a LangGraph store."""

from langchain_ctxwin.tool_results.stores.langgraph import LangGraphResultStore
from langchain_ctxwin.tool_results.stores.memory import MemoryResultStore
from langchain_ctxwin.tool_results.stores.redis import RedisResultStore

__all__ = ["LangGraphResultStore", "MemoryResultStore", "RedisResultStore"]
