"""A loopback Gemini API that is as strict as the real one and counts with a real tokenizer."""

import base64
import hashlib
import re

from langchain_google_genai import ChatGoogleGenerativeAI

from support import gemini_rules
from support.gemini_policy import tool_loop
from support.loopback import Answer, Loopback, RefusalError

INPUT_LIMIT_TOKENS = 1_048_576  # larger than any test's conversation
STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
ROUTE = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:?]+):generateContent")
CACHES = re.compile(r"/v1(?:beta)?/cachedContents")
STORED = ("systemInstruction", "tools", "toolConfig")
"""Of content in the explicit cache: what a request beside it may not say."""

# replies that have nothing to do with the request
RATE_LIMIT = RefusalError(
    "You exceeded your current quota, please check your plan and billing details.",
    status=429,
)
RATE_LIMIT_NAMING_TOKENS = RefusalError(
    "Quota exceeded: input token limit per minute, retry in 1s.", status=429
)
UNAVAILABLE = RefusalError(
    "The model is overloaded. Please try again later.", status=503
)


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
        """Refusals of the next requests, whatever they are."""

        self.model = model
        self._caches = {}
        self._signatures = {}
        self._last_units = []

    @property
    def generated(self):
        """The requests that were answered by the policy."""
        return [
            request
            for request in self.requests
            if request.status == 200 and ROUTE.fullmatch(request.path)
        ]

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
        model = ROUTE.fullmatch(call.path)["model"]
        body = self._with_stored(call.body)
        units = gemini_rules.unit_tokens(body)
        size = sum(tokens for _, tokens in units)
        if refusal := self._refusal(model, body, size):
            reply = self.error_body(refusal)
            return Answer(body=reply, status=refusal.status, tokens=size)
        cached = gemini_rules.shared_prefix_tokens(self._last_units, units)
        self._last_units = units
        reply = self._generate(model, body, size, cached)
        return Answer(body=reply, tokens=size)

    def error_body(self, refusal):
        """Write a refusal as the API does."""
        status = refusal.status
        error = {"message": refusal.message, "status": STATUS_NAMES[status]}
        return {"error": {"code": status, **error}}

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

    def _refusal(self, model, body, size):
        if self.faults:
            return self.faults.pop(0)
        problem = gemini_rules.request_problem(
            body, model=model, signatures=self._signatures
        )
        if problem is None and size > self.input_limit:
            allowed = f"the maximum number of tokens allowed ({self.input_limit})"
            problem = f"The input token count ({size}) exceeds {allowed}."
        return RefusalError(problem) if problem else None

    def _generate(self, model, body, size, cached):
        parts = self._signed(self.policy(body))
        output = sum(map(gemini_rules.part_tokens, parts))
        usage = {
            "promptTokenCount": size,
            "candidatesTokenCount": output,
            "totalTokenCount": size + output,
        }
        if cached:
            usage["cachedContentTokenCount"] = cached
        content = {"role": "model", "parts": parts}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
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
