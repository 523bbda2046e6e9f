"""Former place of `langchain_ctxwin.routing`, for imports that were written for it."""

from langchain_ctxwin.routing import ModelRouter, Quality, Route, RoutedChatModel, Sample

__all__ = ["ModelRouter", "Quality", "Route", "RoutedChatModel", "Sample"]
