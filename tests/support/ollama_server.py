"""A loopback server in Ollama's manner, in OpenAI's shape: a prompt over its window is cut, silently."""

import itertools
import json

from langchain_openai import ChatOpenAI

from support.loopback import Answer, Loopback, script
from support.oracle import text_tokens

FRAME_TOKENS = 4  # around each message
# of the window: what is left of a prompt that exceeds it (ollama, runner)
CUT_SHARE = 0.5


class OllamaServer(Loopback):
    """Answers `/v1/chat/completions`; of a prompt over `num_ctx` it keeps the last half of the window, HTTP 200.

    Example:
        >>> with OllamaServer(num_ctx=4096) as server:
        ...     server.chat_model().invoke("hi").text
        'Noted.'
    """

    def __init__(self, *, num_ctx=4_096, policy=None):
        super().__init__()
        self.num_ctx = num_ctx
        self.policy = policy or script("Noted.")
        self.cut = 0
        """Requests of which something was cut."""

        self._numbers = itertools.count(1)

    def chat_model(self, **options):
        """Return a real client, pointed at this server, without retries."""
        settings = {"model": "local", "api_key": "x", "max_retries": 0}
        return ChatOpenAI(base_url=f"{self.url}/v1", **settings | options)

    def answer(self, call):
        """Answer one request."""
        size = sum(map(_tokens, call.body["messages"]))
        size += text_tokens(json.dumps(call.body.get("tools") or ""))
        if size > self.num_ctx:
            self.cut += 1
            size = int(CUT_SHARE * self.num_ctx) + 2
        written = self.policy(call.body)
        message = {"role": "assistant", "content": written}
        if not isinstance(written, str):
            message = {"role": "assistant", "content": "", "tool_calls": written}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {
            "prompt_tokens": size,
            "completion_tokens": 8,
            "total_tokens": size + 8,
        }
        head = {"id": f"chatcmpl-{next(self._numbers)}", "object": "chat.completion"}
        body = {
            **head,
            "created": 0,
            "model": "local",
            "choices": [choice],
            "usage": usage,
        }
        return Answer(body=body, tokens=size)


def looking(body):
    """The local model's part: look at a place, then say something about it."""
    if body["messages"][-1]["role"] == "tool":
        return "There is a boat. " * 10
    place = f"pier {len(body['messages'])}"
    function = {"name": "look", "arguments": json.dumps({"place": place})}
    return [{"id": f"call-{place}", "type": "function", "function": function}]


def _tokens(message):
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content)
    return (
        FRAME_TOKENS
        + text_tokens(text)
        + text_tokens(json.dumps(message.get("tool_calls") or ""))
    )
