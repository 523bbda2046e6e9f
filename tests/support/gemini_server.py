"""A loopback Gemini API that is as strict as the real one and counts with a real tokenizer."""

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from langchain_google_genai import ChatGoogleGenerativeAI

from support import gemini_rules
from support.gemini_policy import tool_loop
from support.loopback import Answer, Loopback, RefusalError

INPUT_LIMIT_TOKENS = 1_048_576  # larger than any test's conversation
STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
ROUTE = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:?]+):(?P<method>\w+)")
CACHES = re.compile(r"/v1(?:beta)?/(?P<name>cachedContents(?:/[^/]+)?)")
GENERATE = "generateContent"
STORED = ("systemInstruction", "tools", "toolConfig")
"""Of content in the explicit cache: what a request beside it may not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A reply that has nothing to do with the request."""

    status: int
    message: str


RATE_LIMIT = Fault(
    status=429,
    message="You exceeded your current quota, please check your plan and billing details.",
)
RATE_LIMIT_NAMING_TOKENS = Fault(
    status=429, message="Quota exceeded: input token limit per minute, retry in 1s."
)
UNAVAILABLE = Fault(
    status=503, message="The model is overloaded. Please try again later."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiRequest:
    """One request as it arrived, and what became of it."""

    model: str
    method: str
    body: dict[str, Any]
    tokens: int
    """True input tokens: system instruction, tools and contents."""

    cached_tokens: int
    """Tokens at the start that the last answered request had as well."""

    status: int
    reply: dict[str, Any]


class GeminiServer(Loopback):
    """Answers like the Gemini API on a free port of the loopback interface while the `with` block runs.

    `policy` writes the parts of an answer from the request's JSON; calls get a thought signature unless they carry
    one. Requests over `input_limit`, or against the API's rules, get its 400 errors.

    Example:
        >>> with GeminiServer(input_limit=4096) as server:
        ...     server.chat_model().invoke("hi").usage_metadata[
        ...         "input_tokens"
        ...     ] == server.requests[-1].tokens
        True
    """

    def __init__(
        self,
        *,
        input_limit=INPUT_LIMIT_TOKENS,
        policy=None,
        model="gemini-test",
    ):
        super().__init__()
        self.input_limit = input_limit
        self.policy = policy or tool_loop()
        self.faults = []
        self.model = model
        self.requests = []
        self._caches = {}
        self._signatures = {}
        self._last_units = []

    @property
    def generated(self):
        """The requests that were answered by the policy."""
        return [
            request
            for request in self.requests
            if request.status == 200 and request.method == GENERATE
        ]

    @property
    def largest_tokens(self):
        """Size of the largest request that was answered."""
        return max((request.tokens for request in self.generated), default=0)

    def fail_next(self, fault, times=1):
        """Answer the next `times` generation requests with `fault`."""
        self.faults += [fault] * times

    def chat_model(self, **options):
        """Return the real client, pointed at this server, without retries."""
        settings = {
            "model": self.model,
            "google_api_key": "x",
            "base_url": self.url,
            "max_retries": 1,
        }
        return ChatGoogleGenerativeAI(**settings | options)

    def answer(self, call):
        """Answer one request: a cache, or what a model is asked."""
        if CACHES.fullmatch(call.path):
            return Answer(body=self._stored(call.body))
        found = ROUTE.fullmatch(call.path)
        if found is None:
            raise RefusalError(f"not found: {call.path}", status=404)
        status, reply = self._asked(found["model"], found["method"], call.body)
        return Answer(body=reply, status=status)

    def error_body(self, refusal):
        """Write a refusal as the API does."""
        return error_reply(refusal.status, refusal.message)[1]

    def record(self, call, answer):
        """Keep nothing here: what a model is asked is kept with its size."""

    def _asked(self, model, method, body):
        """Answer a request to a model and record it."""
        units, cached = [], 0
        try:
            given = body.get("generateContentRequest", body)
            seen = self._with_stored(given)
            units = gemini_rules.unit_tokens(seen)
            cached = gemini_rules.shared_prefix_tokens(self._last_units, units)
            status, reply = self._reply(
                model, method, seen, (sum(unit[1] for unit in units), cached)
            )
        except RefusalError as refusal:
            status, reply = error_reply(refusal.status, refusal.message)
        if status == 200 and method == GENERATE:
            self._last_units = units
        what = {
            "model": model,
            "method": method,
            "body": body,
            "status": status,
            "reply": reply,
        }
        self.requests.append(
            GeminiRequest(
                **what, tokens=sum(unit[1] for unit in units), cached_tokens=cached
            )
        )
        return status, reply

    def _stored(self, body):
        """Keep content in the explicit cache (https://ai.google.dev/api/caching)."""
        name = f"cachedContents/{len(self._caches) + 1}"
        self._caches[name] = {
            key: body[key] for key in (*STORED, "contents") if key in body
        }
        return {"name": name, "model": body["model"]}

    def _with_stored(self, body):
        """Return a request with the stored content that it names; what both may not say is refused."""
        if "cachedContent" not in body:
            return body
        if any(body.get(key) for key in STORED):
            raise RefusalError(
                "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
                "tool_config.\n\nProposed fix: move those values to CachedContent from GenerateContent request."
            )
        stored = self._caches[body["cachedContent"]]
        contents = [*stored.get("contents", ()), *body["contents"]]
        return {**body, **stored, "contents": contents}

    def _reply(self, model, method, body, size):
        if self.faults:
            fault = self.faults.pop(0)
            return error_reply(fault.status, fault.message)
        problem = gemini_rules.request_problem(
            body, model=model, signatures=self._signatures
        )
        if problem:
            return error_reply(400, problem)
        if size[0] > self.input_limit:
            allowed = f"the maximum number of tokens allowed ({self.input_limit})"
            return error_reply(
                400, f"The input token count ({size[0]}) exceeds {allowed}."
            )
        return 200, self._generate(model, body, size)

    def _generate(self, model, body, size):
        parts = self._signed(self.policy(body))
        output = sum(map(gemini_rules.part_tokens, parts))
        usage = {"promptTokenCount": size[0], "candidatesTokenCount": output}
        if size[1]:
            usage["cachedContentTokenCount"] = size[1]
        usage["totalTokenCount"] = size[0] + output
        candidate = {
            "content": {"role": "model", "parts": parts},
            "finishReason": "STOP",
            "index": 0,
        }
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": model,
        }

    def _signed(self, parts):
        """Give the first call of the answer a signature, as the API does for parallel calls."""
        first = next((part for part in parts if "functionCall" in part), None)
        if first is None:
            return parts
        key = gemini_rules.call_key(first)
        seed = f"{len(self._signatures)} {key}".encode()
        signature = (
            first.get("thoughtSignature")
            or base64.b64encode(hashlib.sha256(seed).digest()).decode()
        )
        self._signatures[gemini_rules.decode_signature(signature)] = key
        return [
            {**part, "thoughtSignature": signature} if part is first else part
            for part in parts
        ]


def error_reply(status, message):
    """Return an error as the API words it in JSON."""
    return status, {
        "error": {"code": status, "message": message, "status": STATUS_NAMES[status]}
    }
