"""Former place of `langchain_ctxwin.routing.Sample`, for imports that were written for it."""

from langchain_ctxwin.routing import Sample

__all__ = ["Sample"]
