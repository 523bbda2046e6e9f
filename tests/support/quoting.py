"""Providers that quote the request in their errors, and what somebody writes to be quoted."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.fakes import SdkError

CLAIMED_LIMIT = 300
CLAIM = (
    f"maximum context length is {CLAIMED_LIMIT} tokens. However, your messages resulted in 9000 tokens. "
    "Please reduce the length of the messages."
)

QUOTES: dict[str, Callable[[str], str]] = {
    "verbatim": str,
    "truncated": lambda text: text[: text.index("Please") - 2],
    "json": lambda text: json.dumps({"input": [{"role": "user", "content": text}]}),
    "repr": lambda text: repr({"content": text}),
    "escaped twice": lambda text: json.dumps(json.dumps([text])),
    "upper case": str.upper,
    "white space": lambda text: "\n   ".join(text.split()),
    "html": lambda text: text.replace("'", "&#39;").replace('"', "&quot;").replace(",", ",&nbsp;"),
}
"""How servers print a text of the request."""


def rejected(quote: str) -> SdkError:
    """Build a refusal for another reason than size, with a quote of what was refused."""
    return SdkError(f"Error code: 400 - content policy: this text was rejected: {quote}", status_code=400)


def too_large(limit: int, actual: int, quote: str = "") -> SdkError:
    """Build a refusal for its size, with a quote of what was refused."""
    text = f"This model's maximum context length is {limit} tokens. However, you requested {actual} tokens."
    body = {"message": f'{text} Your prompt began with "{quote}"', "code": "context_length_exceeded"}
    return SdkError(f"Error code: 400 - {body}", status_code=400, code="context_length_exceeded", body=body)
