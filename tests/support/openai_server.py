"""A loopback OpenAI Responses API: kept chains, encrypted items, compaction, its prompt cache, and a scripted model."""

import base64
import hashlib
import itertools
import json

from langchain_openai import ChatOpenAI

from support import openai_rules as rules
from support.loopback import Answer, Loopback, RefusalError, script
from support.oracle import text_tokens
from support.prompt_cache import FIVE_MINUTES, HALF_HOUR, PromptCache

ANSWER = "Noted: the boats were counted."
SUMMARY = "The boats were counted so far."
FROM_THE_START = 1_000_000  # blocks to look back: OpenAI sets no limit


class OpenAIServer(Loopback):
    """Answers `/v1/responses` and `/v1/responses/compact` like the API.

    `policy` writes the items of an answer: `text`, `function_call` (`arguments` may be a dict), `reasoning` (its `text`
    stays hidden, as `encrypted_content` where the request includes that). `cache` is `"automatic"`, as with models
    before GPT-5.6, or `"breakpoints"`, as since then. No page says what a server-side compaction adds to the usage of
    its answer: here nothing.

    Example:
        >>> with OpenAIServer(context_window=4096) as server:
        ...     server.chat_model().invoke("hi").text == ANSWER
        True
    """

    def __init__(
        self,
        *,
        context_window=272_000,
        policy=None,
        summary=SUMMARY,
        cache="automatic",
    ):
        super().__init__()
        self.context_window = context_window
        self.policy = policy or script(ANSWER)
        self.summary = summary
        self.cache = cache
        self.stored = {}
        """Response id -> all items up to and with its output; take one out, and the server has forgotten it."""

        self._vault = rules.Vault()
        self._cache = PromptCache()
        self._numbers = itertools.count(1)

    def chat_model(self, **options):
        """Return the real client on the Responses API, pointed at this server, without retries."""
        settings = {
            "model": "gpt-test",
            "api_key": "x",
            "base_url": f"{self.url}/v1",
            "max_retries": 0,
        }
        return ChatOpenAI(**settings | {"use_responses_api": True} | options)

    def answer(self, call):
        """Answer one request by the rules."""
        body = call.body
        items = [*self._chain(body), *rules.items_of(body)]
        if self.cache == "automatic" and any(map(rules.is_marked, items)):
            raise RefusalError(
                "Unknown parameter: 'prompt_cache_breakpoint'.",
                code="unknown_parameter",
            )
        rules.check(items, self._vault)
        if call.path.endswith("/compact"):
            return self._compact(body, items)
        seen = rules.visible(items, self._vault)
        head = []
        if rules.compacts(body, rules.prompt_tokens(body, seen, self._vault)):
            head = [self._seal_compaction(retained=[])]
            seen = [*rules.leading(seen), *head]
        self._check_size(body, seen)
        use = self._bill(body, seen)
        output = self._output(body, seen)
        usage = _usage(use, sum(map(self._size, output)))
        reply = self._response(body, [*head, *output], usage)
        if body.get("store") is not False:
            self.stored[reply["id"]] = [*items, *head, *output]
            self._vault.stored.update(item["id"] for item in (*head, *output))
        tokens = use.read + use.fresh + use.written_5m
        return Answer(body=reply, tokens=tokens)

    def error_body(self, refusal):
        """Write a refusal as the API does."""
        error = {"message": refusal.message, "type": "invalid_request_error"}
        return {"error": {**error, "param": refusal.param, "code": refusal.code}}

    def _chain(self, body):
        """Source: https://developers.openai.com/api/docs/guides/conversation-state."""
        previous = body.get("previous_response_id")
        if previous and previous not in self.stored:
            text = f"Previous response with id '{previous}' not found."
            raise RefusalError(
                text, code="previous_response_not_found", param="previous_response_id"
            )
        return self.stored[previous] if previous else []

    def _check_size(self, body, seen):
        """Refuse what exceeds the window."""
        size = rules.prompt_tokens(body, seen, self._vault)
        if size > self.context_window:
            text = "Your input exceeds the context window of this model. Please adjust your input and try again."
            raise RefusalError(
                f"{text} ({size} tokens)", code="context_length_exceeded", param="input"
            )

    def _compact(self, body, items):
        """Source: the docstring of `CompactedResponse.output` in the SDK."""
        seen = rules.visible(items, self._vault)
        self._check_size(body, seen)
        use = self._bill(body, seen)
        users = [self._retained(item) for item in seen if item.get("role") == "user"]
        output = [*users, self._seal_compaction(retained=users)]
        self._vault.stored.update(item["id"] for item in users)
        head = {
            "id": self._id("resp"),
            "object": "response.compaction",
            "created_at": 0,
        }
        usage = _usage(use, text_tokens(self.summary))
        return Answer(
            body={**head, "output": output, "usage": usage},
            tokens=usage["input_tokens"],
        )

    def _retained(self, item):
        head = {
            "type": "message",
            "id": self._id("msg"),
            "role": "user",
            "status": "completed",
        }
        return {
            **head,
            "content": [{"type": "input_text"} | part for part in rules.parts_of(item)],
        }

    def _bill(self, body, seen):
        scope = f"{body['model']} {body.get('prompt_cache_key')}"
        if self.cache == "breakpoints":
            blocks = rules.prompt_blocks(
                body, rules.marked(body, seen), self._vault, ttl_seconds=HALF_HOUR
            )
            return self._cache.bill(blocks, scope=scope, look_back=FROM_THE_START)
        return self._cache.bill_steps(
            rules.prompt_blocks(body, seen, self._vault),
            scope=scope,
            ttl_seconds=FIVE_MINUTES,
        )

    def _output(self, body, seen):
        """Return the items of the scripted model."""
        written = self.policy({**body, "input": seen})
        parts = (
            [{"type": "text", "text": written}] if isinstance(written, str) else written
        )
        output = [self._item(part, body) for part in parts]
        self._vault.remember(output)
        return output

    def _item(self, part, body):
        if part["type"] == "text":
            content = [{"type": "output_text", "text": part["text"], "annotations": []}]
            head = {
                "type": "message",
                "id": self._id("msg"),
                "role": "assistant",
                "status": "completed",
            }
            return {**head, "content": content}
        if part["type"] == "function_call":
            text = (
                part["arguments"]
                if isinstance(part["arguments"], str)
                else json.dumps(part["arguments"])
            )
            names = {
                "id": self._id("fc"),
                "call_id": self._id("call"),
                "status": "completed",
            }
            return {**names, **part, "arguments": text}
        item = {"type": "reasoning", "id": self._id("rs"), "summary": []}
        shown = "reasoning.encrypted_content" in (body.get("include") or [])
        sealed = self._seal(part["text"])
        self._vault.hidden[sealed] = self._vault.hidden[item["id"]] = part["text"]
        return {**item, "encrypted_content": sealed} if shown else item

    def _seal_compaction(self, *, retained):
        item = {
            "type": "compaction",
            "id": self._id("cmp"),
            "encrypted_content": self._seal(self.summary),
        }
        self._vault.hidden[item["encrypted_content"]] = self.summary
        self._vault.retained[item["encrypted_content"]] = {
            rules.identity(each) for each in retained
        }
        return item

    def _response(self, body, output, usage):
        head = {
            "id": self._id("resp"),
            "object": "response",
            "created_at": 0,
            "model": body["model"],
        }
        settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        status = {"status": "completed", "error": None, "usage": usage}
        return {**head, **settings, **status, "output": output}

    def _size(self, item):
        return rules.item_tokens(item, self._vault)

    def _id(self, kind):
        return f"{kind}_{next(self._numbers)}"

    def _seal(self, text):
        return base64.b64encode(
            hashlib.sha256(f"{next(self._numbers)} {text}".encode()).digest()
        ).decode()


def _usage(use, output):
    size = use.read + use.fresh + use.written_5m
    return {
        "input_tokens": size,
        "input_tokens_details": {
            "cached_tokens": use.read,
            "cache_write_tokens": use.written_5m,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": size + output,
    }
