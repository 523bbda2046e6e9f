"""Former place of `langchain_ctxwin.routing`, for imports that were written for it."""

from langchain_ctxwin.routing import ModelRouter, Route, RoutedChatModel

__all__ = ["ModelRouter", "Route", "RoutedChatModel"]
