"""Which refusals are a context overflow, what they state, and what only looks like one."""

import httpx
import openai
import pytest
from google.genai.errors import ClientError
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import ContextOverflowError, ModelInvalidRequestError, ModelRateLimitError
from langchain_google_genai.chat_models import GoogleContextOverflowError, GoogleInvalidRequestError

from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow
from langchain_ctxwin.errors import BudgetExceededError, SummarizationError
from support.overflow_hosts import HOSTS
from support.overflow_look_alikes import LOOK_ALIKES
from support.overflow_unseen import UNSEEN
from support.overflow_wordings import BOTH, OTHER_FAILURES, OVERFLOWS

STATED = "prompt is too long: 900 tokens > 800 maximum"


class RefusalError(Exception):
    """A client's exception with whatever attributes it has."""

    def __init__(self, text="", **attributes):
        super().__init__(text)
        self.__dict__.update(attributes)


@pytest.mark.parametrize(("text", "expected"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_stated_overflow_is_recognised_with_its_sizes(text, expected):
    """The same from a text, from bytes, and from an exception with status 400."""
    assert classify_overflow(text) == expected
    assert classify_overflow(text.encode()) == expected
    assert classify_overflow(RefusalError(f"Error code: 400 - {text}", status_code=400)) == expected


@pytest.mark.parametrize("text", OTHER_FAILURES.values(), ids=OTHER_FAILURES)
def test_a_look_alike_is_not_an_overflow(text):
    """Also inside an exception with a status that overflows have."""
    assert classify_overflow(text) is None
    assert classify_overflow(RefusalError(text, status_code=413)) is None


@pytest.mark.parametrize(("text", "expected"), HOSTS.values(), ids=HOSTS)
def test_other_hosts_and_gateways_are_recognised(text, expected):
    """Their shapes are documented, their number grows."""
    assert classify_overflow(text) == expected
    assert classify_overflow(RefusalError(text, status_code=413)) == expected


@pytest.mark.parametrize(("text", "expected"), UNSEEN.items(), ids=range(len(UNSEEN)))
def test_a_wording_that_nobody_listed_is_recognised(text, expected):
    """By what it says, in any order and with any separators."""
    assert classify_overflow(text) == expected
    assert classify_overflow(RefusalError("refused", body={"error": {"message": text}})) == expected


@pytest.mark.parametrize("text", LOOK_ALIKES, ids=range(len(LOOK_ALIKES)))
def test_an_invented_look_alike_is_not_an_overflow(text):
    """Numbers, tokens and limits alone do not make one."""
    assert classify_overflow(text) is None
    assert classify_overflow(RefusalError(text, status_code=400)) is None


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 529])
@pytest.mark.parametrize("name", ["status_code", "code", "status", "http_status"])
def test_a_status_that_says_otherwise_wins_over_the_text(status, name):
    """Rates and credentials are not the size of the request, whatever the text says."""
    assert classify_overflow(RefusalError("prompt is too long: 9 tokens > 8 maximum", **{name: status})) is None


def google(status, message):
    return {"code": status, "response_json": {"error": {"code": status, "message": message, "status": "X"}}}


def test_geminis_rate_limit_is_none_although_its_class_says_overflow():
    """The client names every text with "token limit" an overflow; the status decides."""
    assert classify_overflow(GoogleContextOverflowError(**google(429, "You exceeded your token limit, retry"))) is None
    overflow = GoogleContextOverflowError(**google(400, "The prompt is over the token limit"))
    assert classify_overflow(overflow) == ContextOverflow()


def test_vertex_overflows_that_arrive_as_invalid_requests_are_recognised():
    """The client wraps them in a class that says nothing."""
    cause = ClientError(**google(400, "the input token count is 33000 but model only supports up to 32768"))
    error = GoogleInvalidRequestError(f"Error calling model 'm' (X): {cause}")
    error.__cause__ = cause
    assert classify_overflow(error) == ContextOverflow(32_768, 33_000)


def openai_error(body, status=400, error_type=openai.BadRequestError):
    request = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
    return error_type("refused", response=httpx.Response(status, request=request), body=body)


def test_an_openai_body_is_enough():
    """The code, or a llama.cpp body, says it where the message does not."""
    assert classify_overflow(openai_error({"code": "context_length_exceeded"})) == ContextOverflow()
    wordy = {"code": "context_length_exceeded", "message": "Too long, please wait for a model with 9 tokens per minute"}
    assert classify_overflow(openai_error(wordy)) == ContextOverflow()
    sizes = {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}
    assert classify_overflow(openai_error(sizes)) == ContextOverflow(4096, 5000)
    assert classify_overflow(openai_error({"code": "rate_limit_exceeded"}, 429, openai.RateLimitError)) is None


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "response": {
                "Error": {"Code": "ValidationException", "Message": "prompt is too long: 900 tokens > 800 maximum"}
            }
        },
        {"body": b'{"error": {"message": "prompt is too long: 900 tokens > 800 maximum"}}'},
        {"body": [{"error": {"message": "prompt is too long: 900 tokens > 800 maximum"}}]},
        {"response": httpx.Response(400, text="prompt is too long: 900 tokens > 800 maximum")},
        {"error": "prompt is too long: 900 tokens > 800 maximum", "status_code": -1},
    ],
    ids=["botocore", "bytes", "list", "httpx", "ollama"],
)
def test_bodies_are_read_in_every_shape(attributes):
    """Clients keep the server's words in different places."""
    assert classify_overflow(RefusalError("Bad Request", **attributes)) == ContextOverflow(800, 900)


def test_a_throttled_botocore_call_is_recognised_by_its_nested_status():
    """Botocore keeps the HTTP status in the response metadata."""
    response = {
        "Error": {"Message": "Input is too long for requested model"},
        "ResponseMetadata": {"HTTPStatusCode": 429},
    }
    assert classify_overflow(RefusalError("refused", response=response)) is None


def test_the_class_alone_is_enough_unless_the_text_is_about_a_parameter():
    """LangChain's own class is believed when nothing speaks against it."""
    assert classify_overflow(ContextOverflowError("too big")) == ContextOverflow()
    assert classify_overflow(ContextOverflowError("max_tokens is too large: 9000")) is None
    assert classify_overflow(ModelInvalidRequestError("too big")) is None


def test_the_nearest_decisive_exception_in_the_chain_counts():
    """A rate limit met while handling an overflow is a rate limit, and the other way round."""
    overflow, limited = RefusalError("prompt is too long: 900 tokens > 800 maximum"), ModelRateLimitError("slow down")
    assert classify_overflow(caused(RuntimeError("agent failed"), overflow)) == ContextOverflow(800, 900)
    assert classify_overflow(caused(limited, overflow)) is None
    assert classify_overflow(caused(overflow, limited)) == ContextOverflow(800, 900)
    hidden = RuntimeError("agent failed")
    hidden.__context__, hidden.__suppress_context__ = overflow, True
    assert classify_overflow(hidden) is None


def caused(error, cause):
    copy = type(error)(*error.args)
    copy.__cause__ = cause
    return copy


def test_this_packages_own_errors_are_not_overflows_of_this_model():
    """A refusal before the call, or a summarizer that overflowed, is answered elsewhere."""
    overflow = RefusalError("prompt is too long: 900 tokens > 800 maximum")
    assert classify_overflow(caused(SummarizationError("failed"), overflow)) is None
    assert classify_overflow(BudgetExceededError("prompt is too long: 900 tokens > 800 maximum")) is None


def test_a_request_that_is_echoed_into_the_error_is_not_read_in_full():
    """The message stands at one of the ends."""
    echo = "lorem ipsum " * 100_000
    message = "prompt is too long: 900 tokens > 800 maximum"
    assert classify_overflow(f"{message} {echo}") == ContextOverflow(800, 900)
    assert classify_overflow(f"{echo} {message}") == ContextOverflow(800, 900)


def test_an_exception_that_breaks_while_it_is_read_says_nothing():
    """Foreign properties and `__str__` may raise."""

    class BrokenBody(dict):
        def items(self):
            raise RuntimeError

    class BrokenError(Exception):
        body = BrokenBody(message=STATED)

        def __str__(self):
            raise ValueError

        def refuse(self):
            raise RuntimeError

        response = __cause__ = __context__ = __suppress_context__ = __notes__ = property(refuse)

    assert classify_overflow(BrokenError()) is None
    assert classify_overflow(ExceptionGroup("", [BrokenError(), RefusalError(STATED)])) == ContextOverflow(800, 900)


@pytest.mark.parametrize("name", ["ContextLengthExceededError", "PromptTooLongException", "ContextWindowExceededError"])
def test_other_clients_classes_that_say_overflow_are_believed(name):
    """Also as words in the text, as gateways repeat them."""
    assert classify_overflow(type(name, (Exception,), {})("refused")) == ContextOverflow()
    assert classify_overflow(f"gateway: {name}: refused") == ContextOverflow()


@pytest.mark.parametrize(
    "name", ["TooManyRequestsError", "ThrottlingException", "QuotaExceeded", "LengthFinishReasonError"]
)
def test_other_clients_classes_that_say_otherwise_win_over_the_text(name):
    """A rate limit may be worded like an overflow."""
    assert classify_overflow(type(name, (Exception,), {})(STATED)) is None


def test_a_status_may_be_text():
    """Some clients keep its digits."""
    assert classify_overflow(RefusalError(STATED, status_code="429")) is None
    assert classify_overflow(RefusalError(STATED, status_code="400")) == ContextOverflow(800, 900)


def test_the_first_decisive_member_of_a_group_counts():
    """Members come before the causes of the group, in their order, however deep."""
    overflow, limited = RefusalError(STATED), ModelRateLimitError("slow down")
    nested = ExceptionGroup("outer", [ValueError("x"), ExceptionGroup("inner", [KeyError("y"), overflow])])
    assert classify_overflow(nested) == ContextOverflow(800, 900)
    assert classify_overflow(BaseExceptionGroup("all", [KeyboardInterrupt(), overflow])) == ContextOverflow(800, 900)
    assert classify_overflow(ExceptionGroup("both", [limited, overflow])) is None
    assert classify_overflow(ExceptionGroup("both", [overflow, limited])) == ContextOverflow(800, 900)
    behind = RuntimeError("agent failed")
    behind.__cause__ = nested
    assert classify_overflow(behind) == ContextOverflow(800, 900)


def test_a_group_whose_member_is_caused_by_the_group_ends():
    """The chain is a graph."""
    member = ValueError("x")
    group = ExceptionGroup("outer", [member])
    member.__cause__ = group
    assert classify_overflow(group) is None


def test_notes_are_text_too():
    """Also beside notes that are none."""
    error = RefusalError("refused")
    error.add_note("server said: " + STATED)
    assert classify_overflow(error) == ContextOverflow(800, 900)
    error.__notes__ = [None, 7, "nothing"]
    assert classify_overflow(error) is None
    error.__notes__ = "no list"
    assert classify_overflow(error) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe " + STATED.encode() + b" \xc3",
        bytearray(STATED.encode()),
        {"echo": "lorem " * 300_000, "error": {"message": STATED}, "request": ["ipsum " * 300_000] * 3},
        {"request": {"messages": [{"content": "lorem"}] * 5_000}, "error": {"message": STATED}},
        '{"error": "{\\"error\\": {\\"message\\": \\"' + STATED + '\\"}}"}',
    ],
    ids=["not utf-8", "bytearray", "between echoes", "many messages", "json in json"],
)
def test_odd_and_huge_bodies_are_read(body):
    """The message is found beside whatever was echoed."""
    assert classify_overflow(RefusalError("refused", body=body)) == ContextOverflow(800, 900)
    assert classify_overflow(body) == ContextOverflow(800, 900)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("input exceeds the context window of 8k tokens", 8_000),
        ("input exceeds the 128K token limit", 128_000),
        ("the prompt is too long, the context is 1M tokens", 1_000_000),
        ("model big-32k-0613: context window exceeded", None),
        ("big-16k: prompt is too long for the context window", None),
    ],
)
def test_a_limit_in_thousands_is_read_where_it_is_surely_one(text, limit):
    """The name of a model is none."""
    assert classify_overflow(text) == ContextOverflow(limit)


def test_a_size_that_would_fit_is_left_out():
    """A limit above the stated size of a refused request means that one of them was misread."""
    assert classify_overflow("prompt is too long: 700 tokens > 800 maximum") == ContextOverflow(800)
    both = "input length and max_tokens exceed context limit: 700 + 50 > 800"
    assert classify_overflow(both) == ContextOverflow(800, None, BOTH, 50)


def test_an_address_and_an_id_are_no_sizes():
    """Numbers of other things stand in most error texts."""
    text = (
        "POST http://127.0.0.1:11434/v1 at 2025-11-03T10:22:01: req_9000123 code 20015: prompt exceeds context window"
    )
    assert classify_overflow(text) == ContextOverflow()


NEAR_MATCHES = [
    *("0", "1 ", "1,000 ", "100 200 300 ", "a_", "context_", "prompt ", "token 9000 ", "tokens exceed ", "input "),
    *("maximum context length is 8192 ", "requested 5 tokens (", "n_ctx: 1 ", "n_prompt_tokens: 8 ", "output exceed "),
    *("max_tokens is 5 ", "input length and ", "length 5 exceeds the ", "too many tokens: ", "not a ", "\\", "\\n"),
    *("input token count 9000 ", "exceeds max max max ", "context 8192, ", "limit 8,192 ", "http://a", "> ", "[", "("),
]


@pytest.mark.parametrize("near_match", NEAR_MATCHES)
def test_a_megabyte_of_near_matches_is_answered(near_match):
    """No pattern tries each way to read a text: these calls would not end."""
    text = near_match * (1_000_000 // len(near_match))
    for source in (text, text.encode(), {"message": text}, RefusalError(text, body={"error": [text] * 50})):
        overflow = classify_overflow(source)
        assert overflow is None or overflow.limit is None or overflow.limit <= (overflow.actual or overflow.limit)


def test_cycles_in_chains_and_bodies_end():
    """A body may contain itself, and an exception may be its own cause further down."""
    body = {"message": "boom"}
    body["self"] = [body]
    first, second = RefusalError("a", body=body), RefusalError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify_overflow(first) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FRAGMENTS = st.lists(
    st.sampled_from(
        [*(text for text, _ in OVERFLOWS.values()), *UNSEEN, *OTHER_FAILURES.values(), "1" * 5000, "\\", "\ud800"]
    ),
    max_size=4,
).map(" ".join)


@given(source=VALUES | FRAGMENTS)
def test_any_value_gives_a_verdict(source):
    """Classification never raises, states positive sizes or none, and no size that fits the limit."""
    overflow = classify_overflow(source) or ContextOverflow()
    sizes = (overflow.limit, overflow.actual, overflow.requested_output)
    assert all(size is None or size > 0 for size in sizes)
    if overflow.limit and overflow.actual:
        assert overflow.actual + (overflow.requested_output or 0) >= overflow.limit


@given(
    texts=st.lists(FRAGMENTS | st.text(), min_size=1, max_size=5),
    attributes=st.dictionaries(
        st.sampled_from(["code", "type", "body", "status", "status_code", "response", "details", "error"]), VALUES
    ),
    links=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=8),
)
def test_any_graph_of_exceptions_gives_a_verdict(texts, attributes, links):
    """Causes and contexts may form any graph."""
    errors = [RefusalError(text, **attributes) for text in texts]
    for start, end, is_cause in links:
        source, target = errors[start % len(errors)], errors[end % len(errors)]
        setattr(source, "__cause__" if is_cause else "__context__", target)
    overflow = classify_overflow(errors[0])
    assert overflow is None or overflow.kind in {"input", BOTH}
