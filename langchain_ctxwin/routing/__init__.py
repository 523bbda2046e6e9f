"""Routing: which of several models takes a request, and a chat model that asks it.

    router       ModelRouter: what can take the request (candidates), then what is strong enough, then the cheapest
    judging      how much a request asks of a model, where the caller does not say, and what to expect of one
    chat_model   RoutedChatModel: calls whom the router chose, and goes on with another when one fails

A route is data: the model, why, and why not each of the others.
"""

from langchain_ctxwin.routing.chat_model import RoutedChatModel
from langchain_ctxwin.routing.router import ModelRouter, Route

__all__ = [
    "ModelRouter",
    "Route",
    "RoutedChatModel",
]
