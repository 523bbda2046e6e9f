"""Former place of `langchain_ctxwin.routing.Quality`, for imports that were written for it."""

from langchain_ctxwin.routing import Quality

__all__ = ["Quality"]
