"""Routing: which of several models takes a request, and a chat model that asks it.

    router       ModelRouter: what can take the request (candidates), then what is strong enough, then the cheapest
    choosing     which of those that can take it is worth it, and why not the others
    judging      how much a request asks of a model, where the caller does not say
    outcomes     how often each model answered each kind of task well
    chat_model   RoutedChatModel: calls whom the router chose; fallbacks goes on with another when one fails

A route is data: the model, why, and why not each of the others.
"""

from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.errors import RemainingTooSmallError
from langchain_ctxwin.routing.candidates import (
    Candidate,
    RouteRequest,
    Size,
    conversation_key,
)
from langchain_ctxwin.routing.chat_model import RoutedChatModel
from langchain_ctxwin.routing.fallbacks import failure_of
from langchain_ctxwin.routing.judging import judged
from langchain_ctxwin.routing.outcomes import Outcomes
from langchain_ctxwin.routing.router import ModelRouter, Route

__all__ = [
    "Candidate",
    "ModelRouter",
    "Outcomes",
    "RemainingTooSmallError",
    "Route",
    "RouteRequest",
    "RoutedChatModel",
    "Size",
    "conversation_key",
    "failure_of",
    "judged",
    "output_tokens_of",
]
