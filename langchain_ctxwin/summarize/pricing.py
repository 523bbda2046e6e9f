"""What does a piece of text cost, by any token counter?"""

from __future__ import annotations

from langchain_core.messages import HumanMessage

from langchain_ctxwin.protocols import TokenCounter


def text_tokens(counter: TokenCounter, text: str) -> int:
    """Return the tokens of `text`: by the counter's `count_text` if it has one, else as one user message.

    Priced as a message, the counter's overhead per message is included.
    """
    count_text = getattr(counter, "count_text", None)
    return int(count_text(text)) if callable(count_text) else counter([HumanMessage(text)])
