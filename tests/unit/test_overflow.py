"""Which refusals are a context overflow, what they state, and what only looks like one."""

import json

import httpx
import openai
import pytest
from google.genai.errors import ClientError
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelInvalidRequestError,
    ModelRateLimitError,
)
from langchain_google_genai.chat_models import (
    GoogleContextOverflowError,
    GoogleInvalidRequestError,
)

from langchain_ctxwin import (
    BudgetExceededError,
    ContextOverflow,
    SummarizationError,
    classify_overflow,
)
from support.overflow_wordings import REFUSALS

STATED = "prompt is too long: 900 tokens > 800 maximum"
FOUND = ContextOverflow(800, 900)
NONE_STATED = ContextOverflow()
BYTES = ContextOverflow(unit="bytes")


class RefusalError(Exception):
    """A client's exception with whatever attributes it has."""

    def __init__(self, text="", **attributes):
        super().__init__(text)
        self.__dict__.update(attributes)


@pytest.mark.parametrize(("text", "expected"), [*REFUSALS, ("", None)])
def test_a_refusal_is_told_from_what_only_looks_like_one(text, expected):
    """The same from a text, from an exception, and for an overflow from its body."""
    assert classify_overflow(text) == expected
    assert (
        classify_overflow(RefusalError(f"Error code: 400 - {text}", status_code=400))
        == expected
    )
    in_body = RefusalError("refused", body={"error": {"message": text}})
    assert expected is None or classify_overflow(in_body) == expected


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, "429", 529])
@pytest.mark.parametrize("name", ["status_code", "code", "status", "http_status"])
def test_a_status_that_says_otherwise_wins_over_the_text(status, name):
    """Rates and credentials are not the size of the request, whatever the text says."""
    assert classify_overflow(RefusalError(STATED, **{name: status})) is None


def google(status, message):
    return {
        "code": status,
        "response_json": {"error": {"code": status, "message": message, "status": "X"}},
    }


def openai_error(body, status=400, error_type=openai.BadRequestError):
    request = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
    return error_type(
        "refused", response=httpx.Response(status, request=request), body=body
    )


def vertex_error():
    cause = ClientError(
        **google(
            400, "the input token count is 33000 but model only supports up to 32768"
        )
    )
    return caused(
        GoogleInvalidRequestError(f"Error calling model 'm' (X): {cause}"), cause
    )


def caused(error, cause):
    copy = type(error)(*error.args)
    copy.__cause__ = cause
    return copy


WORDY = {
    "code": "context_length_exceeded",
    "message": "Too long, please wait for a model with 9 tokens per minute",
}
SIZES = {
    "code": 400,
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 5000,
    "n_ctx": 4096,
}
THROTTLED = {"Error": {"Message": STATED}, "ResponseMetadata": {"HTTPStatusCode": 429}}


@pytest.mark.parametrize(
    "attributes",
    [
        {"response": httpx.Response(400, text=STATED)},
        {"response": {"Error": {"Code": "ValidationException", "Message": STATED}}},
        {"error": STATED, "status_code": -1},
        {"body": json.dumps({"error": {"message": STATED}}).encode()},
        {"body": [{"error": {"message": STATED}}]},
        {
            "body": {
                "error": {"message": STATED},
                "request": ["ipsum " * 300_000] * 3,
            }
        },
        {
            "body": {
                "request": {"messages": [{"content": "lorem"}] * 5_000},
                "error": {"message": STATED},
            }
        },
        {"body": '{"error": "{\\"error\\": {\\"message\\": \\"' + STATED + '\\"}}"}'},
    ],
    ids=str.split("httpx botocore ollama bytes list echoes many-messages json-in-json"),
)
def test_the_server_s_words_are_read_wherever_a_client_keeps_them(attributes):
    assert classify_overflow(RefusalError("Bad Request", **attributes)) == FOUND


def test_a_body_that_a_client_left_unread_is_not_asked_for():
    response = httpx.Response(400, content=iter([b"read by nobody"]))
    response.close()
    assert classify_overflow(RefusalError(STATED, response=response)) == FOUND


def called(name):
    return type(name, (Exception,), {})


SLOW = ModelRateLimitError("slow down")
LARGE = RefusalError(STATED)
HIDDEN = RuntimeError("agent failed")
HIDDEN.__context__, HIDDEN.__suppress_context__ = LARGE, True

RAISED = {
    "body and status": [
        (openai_error(WORDY), NONE_STATED),
        (openai_error(SIZES), ContextOverflow(4096, 5000)),
        (
            openai_error({"code": "rate_limit_exceeded"}, 429, openai.RateLimitError),
            None,
        ),
        (
            GoogleContextOverflowError(
                **google(429, "You exceeded your token limit, retry")
            ),
            None,
        ),
        (
            GoogleContextOverflowError(
                **google(400, "The prompt is over the token limit")
            ),
            NONE_STATED,
        ),
        (vertex_error(), ContextOverflow(32_768, 33_000)),
        (
            RefusalError("An error occurred (ThrottlingException)", response=THROTTLED),
            None,
        ),
    ],
    "the class, and one that is not LangChain's own unless the text is about a parameter": [
        (ContextOverflowError("too big"), NONE_STATED),
        (ContextOverflowError("max_tokens is too large: 9000"), NONE_STATED),
        (called("ContextWindowExceededError")("max_tokens is too large: 9000"), None),
        (ModelInvalidRequestError("too big"), None),
        (BudgetExceededError(STATED), None),
        *(
            (called(name)("refused"), NONE_STATED)
            for name in ("ContextLengthExceededError", "PromptTooLongException")
        ),
        *(
            (called(name)(STATED), None)
            for name in ("TooManyRequestsError", "ThrottlingException", "QuotaExceeded")
        ),
        (called("LengthFinishReasonError")(STATED), None),
    ],
    "the nearest decisive exception in the chain": [
        (caused(RuntimeError("agent failed"), LARGE), FOUND),
        (caused(SLOW, LARGE), None),
        (caused(LARGE, SLOW), FOUND),
        (caused(SummarizationError("failed"), LARGE), None),
        (HIDDEN, None),
    ],
    "a 413 is about bytes, but for one about tokens": [
        (RefusalError("refused", status_code=413), BYTES),
        (RefusalError("no", body={"error": {"type": "request_too_large"}}), BYTES),
        (RefusalError(STATED, status_code=413), FOUND),
        (RefusalError("too large on tokens per minute (TPM)", status_code=413), None),
    ],
}
"""What counts -> what clients raise, and what is read from it."""


@pytest.mark.parametrize(
    ("error", "expected"), [row for rows in RAISED.values() for row in rows]
)
def test_what_clients_raise_is_read_by_its_surest_sign(error, expected):
    assert classify_overflow(error) == expected
