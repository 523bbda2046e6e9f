"""Routing: which of several models takes a request, and a chat model that asks it.

    router       ModelRouter: what can take the request (candidates), then what is worth it
    quality      the chance of a good answer, by text_weights that come with the package and by recorded outcomes
    chat_model   RoutedChatModel: calls whom the router chose; fallbacks goes on with another when one fails

A route is data: the model, why, and why not each of the others.
"""

from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.errors import RemainingTooSmallError
from langchain_ctxwin.routing.candidates import Candidate, RouteRequest, Size, conversation_key
from langchain_ctxwin.routing.chat_model import RoutedChatModel
from langchain_ctxwin.routing.fallbacks import failure_of
from langchain_ctxwin.routing.quality import Outcomes, Quality
from langchain_ctxwin.routing.router import ModelRouter, Route
from langchain_ctxwin.routing.text_weights import Sample, TextWeights

__all__ = [
    "Candidate",
    "ModelRouter",
    "Outcomes",
    "Quality",
    "RemainingTooSmallError",
    "Route",
    "RouteRequest",
    "RoutedChatModel",
    "Sample",
    "Size",
    "TextWeights",
    "conversation_key",
    "failure_of",
    "output_tokens_of",
]
