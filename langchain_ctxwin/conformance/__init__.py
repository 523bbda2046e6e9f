"""Tests for any context middleware, hook or agent: subclass `ContextMiddlewareTests` in a test module of your own.

```python
from langchain_ctxwin.conformance import ContextMiddlewareTests


class TestMine(ContextMiddlewareTests):
    def middleware(self, model, summarizer):
        return [MyMiddleware(model, summarizer=summarizer)]
```

Needs pytest and LangChain's agents: `pip install pytest 'langchain-ctxwin[agents]'`.
"""

from langchain_ctxwin.conformance.suite import (
    ContextMiddlewareTests,
    InvalidRequestError,
    StrictChatModel,
    Summaries,
    problem_of,
)

__all__ = ["ContextMiddlewareTests", "InvalidRequestError", "StrictChatModel", "Summaries", "problem_of"]
