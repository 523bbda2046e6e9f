"""A chat model that behaves as a policy says, and refuses what a strict provider would refuse."""

import hashlib
from collections.abc import Callable
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import Field

from langchain_ctxwin import testing
from support.oracle import exact_count

QUOTE_CHARS = 60  # enough of a text to recognise it

Tools = list[dict[str, Any]]
Policy = Callable[[list[BaseMessage], Tools], AIMessage]


class SdkError(Exception):
    """Has the shape of a provider SDK's status error: `status_code`, `code`, `type`, `body`."""

    def __init__(
        self,
        message,
        *,
        status_code,
        code=None,
        body=None,
    ):
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        self.code = code
        self.body = body


def core_overflow(tokens, limit):
    """Build LangChain's own overflow error with Gemini's wording."""
    text = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
    return ContextOverflowError(text)


def openai_overflow(tokens, limit):
    """Build an overflow error that only `code` and the text identify, as the OpenAI SDK raises it."""
    text = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens."
    body = {
        "message": text,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return SdkError(
        f"Error code: 400 - {body}",
        status_code=400,
        code="context_length_exceeded",
        body=body,
    )


def llama_overflow(tokens, limit):
    """Build an overflow error whose numbers stand in `body`, as llama.cpp replies."""
    text = f"request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    body = {
        "message": text,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens,
        "n_ctx": limit,
    }
    return SdkError(f"Error code: 400 - {body}", status_code=400, body=body)


def usage(input_tokens, output_tokens=1):
    """Return what a provider reports of a request and its answer."""
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }


def digest(text):
    """Return a short fingerprint of `text`, so that an answer can prove what it saw."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def echo(messages, tools):
    """Answer with the fingerprint and the beginning of the last user message."""
    text = next(
        (
            message.text
            for message in reversed(messages)
            if isinstance(message, HumanMessage)
        ),
        "",
    )
    return AIMessage(f"seen {digest(text)}: {text[:QUOTE_CHARS]}")


def script(*answers):
    """Play the answers in order, the last one for ever."""
    queue = list(answers)

    def play(messages, tools):
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        return AIMessage(answer) if isinstance(answer, str) else answer

    return play


def tool_loop(*, steps, parallel=1, args=None):
    """Call the first tool in `steps` steps of each turn, `parallel` calls at a time, then echo the user message.

    It counts the steps that it can see since the last user message: a lost step is repeated.
    """

    def decide(messages, tools):
        turn = _current_turn(messages)
        done = sum(
            isinstance(message, AIMessage) and bool(message.tool_calls)
            for message in turn
        )
        if done >= steps or not tools:
            return echo(messages, tools)
        name = tools[0]["function"]["name"]
        calls = [
            {"name": name, "args": args or {}, "id": f"call-{len(messages)}-{i}"}
            for i in range(parallel)
        ]
        return AIMessage("", tool_calls=calls)

    return decide


class ScriptedChatModel(testing.ScriptedChatModel):
    """The scripted model with an exact tokenizer, faults in advance, and a limit that its profile does not state."""

    counter: Callable[..., int] = exact_count
    overflow: testing.Overflow | None = core_overflow
    policy: Policy = echo
    input_limit: int | None = None
    """Largest input in tokens under `counter`; a larger one raises what `overflow` builds."""

    faults: list[Exception] = Field(default_factory=list)
    """Raised one per request, first to last, before anything else is looked at."""

    def _refusal(self, messages, tokens, options):
        if self.faults:
            return self.faults.pop(0)
        problem = super()._refusal(messages, tokens, options)
        if (
            problem is None
            and self.input_limit is not None
            and tokens > self.input_limit
        ):
            return self.overflow(tokens, self.input_limit)
        return problem

    def _next(self, messages, tools):
        return self.policy(messages, tools)


def _current_turn(messages):
    start = max(
        (i for i, message in enumerate(messages) if isinstance(message, HumanMessage)),
        default=-1,
    )
    return messages[start + 1 :]
