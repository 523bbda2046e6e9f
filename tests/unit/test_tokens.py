"""How close, how bounded and how robust are token counts, and are characters counted in the right class?"""

import json
import random
import string
import uuid

import pytest
import quicktok
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_ctxwin import CharRatioCounter, TokenEstimator
from langchain_ctxwin.core.model_info import family_of, model_name
from langchain_ctxwin.core.token_weights import FEATURES, WEIGHTS
from langchain_ctxwin.core.tokens import SCRIPT_STARTS, features
from langchain_ctxwin.core.tool_schemas import FRAMING
from support.agents import call

O200K = quicktok.get_encoding("o200k_base")
OPENAI = TokenEstimator("openai")
FAMILIES = sorted(WEIGHTS)
RUNS = settings(max_examples=100)
ANY_TEXT = st.text(st.characters(exclude_categories=()))
WORDS = st.lists(
    st.text(string.ascii_lowercase, min_size=1, max_size=9), min_size=1, max_size=60
).map(" ".join)
ORDINARY = st.lists(
    st.one_of(WORDS, st.integers(0, 99_999).map(str)), min_size=1, max_size=8
).map(". ".join)


def exact(text):
    return O200K.count(text.encode("utf-8", "replace").decode())


def rng():
    return random.Random(5)  # noqa: S311


def rows(count):
    made = rng()
    return [
        f'{{"id": "{uuid.UUID(int=made.getrandbits(128))}", "paid": true, "amount": {made.random() * 90:.2f}}}'
        for _ in range(count)
    ]


ENGLISH = (
    "The customer asked twice whether the replacement would arrive before the weekend. We moved the cache behind the "
    "gateway, and latency fell by a third within an hour. Nobody had noticed that the invoice was booked in the wrong "
    "currency until the audit. It's a small change, but it touches every service that reads the session table."
)
CODE = '''
class Session:
    """One conversation of a user, with its messages."""

    def __init__(self, user_id: str, *, limit: int = 100) -> None:
        self.user_id = user_id
        self._messages: list[Message] = []

    def append(self, message: Message) -> None:
        if len(self._messages) >= self.limit:
            raise SessionFullError(f"{self.user_id} has {len(self._messages)} messages")
        self._messages.append(message)
'''
CHINESE = (
    "客户询问订单什么时候可以送达,并希望在周末之前收到。我们把缓存放在网关后面,延迟在一小时内降低了三分之一。"
    "请在回答第二个问题之前仔细阅读附件中的说明。数据库升级之后,所有服务都需要重新启动一次。"
)
CSV = "id,kind,amount,owner\n" + "\n".join(
    f"{n * 37},order,{n * 3.17:.2f},team-{n % 7}" for n in range(60)
)
TABLE = "| id | kind | amount |\n|----|------|--------|\n" + "\n".join(
    f"| {n} | invoice | {n * 7.31:.2f} |" for n in range(40)
)
ORDINARY_TEXTS = {
    "english": ENGLISH, "code": CODE, "json with uuids": "[" + ",\n".join(rows(30)) + "]", "chinese": CHINESE,
    "csv": CSV, "markdown table": TABLE,
}  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY_TEXTS.values(), ids=ORDINARY_TEXTS)
def test_ordinary_text_is_within_a_quarter_of_the_exact_count(text):
    assert OPENAI.count_text(text) == pytest.approx(exact(text), rel=0.25)


@RUNS
@given(text=ANY_TEXT, family=st.sampled_from(FAMILIES), tokens=st.integers(0, 10**7))
def test_any_text_has_a_count_inside_its_bounds(text, family, tokens):
    """Lone surrogates and control characters included; 0 only for no text. The heuristics are the published ones."""
    estimator = TokenEstimator(family)
    assert (estimator.count_text(text) > 0) is bool(text)
    assert estimator.lower(tokens) <= tokens <= estimator.upper(tokens)
    assert CharRatioCounter().count_text(text) == len(text) // 4
    assert CharRatioCounter(2.5).count_text(text) == len(text) * 2 // 5


REPEATED = st.builds(
    str.__mul__,
    st.sampled_from([*"=-_*#. \n─a1A(é中😀", "\n\n", "\n ", "a1", ", "]),
    st.integers(1, 90),
)
LONG = st.builds(
    str.__mul__,
    st.text(st.sampled_from("aB1 .\né中"), min_size=1, max_size=9),
    st.integers(1, 3_000),
)
PARTS = st.lists(
    st.one_of(
        ANY_TEXT, ORDINARY, REPEATED, st.sampled_from([CODE, CSV, TABLE, CHINESE])
    ),
    max_size=4,
)
APPENDED = st.one_of(st.characters(exclude_categories=()), REPEATED, ANY_TEXT, ORDINARY)


@RUNS
@given(
    text=st.one_of(PARTS.map("".join), LONG),
    more=APPENDED,
    family=st.sampled_from(FAMILIES),
)
def test_no_count_falls_when_text_is_appended(text, more, family):
    """Neither of a text nor of a message, whatever its length, its end and what comes behind it."""
    estimator = TokenEstimator(family)
    assert estimator.count_text(text + more) >= estimator.count_text(text)
    assert estimator([HumanMessage(text + more)]) >= estimator([HumanMessage(text)])
    blocks = [{"type": "text", "text": text}]
    assert estimator(
        [HumanMessage([*blocks, {"type": "text", "text": more}])]
    ) >= estimator([HumanMessage(blocks)])


VOCABULARIES = {
    "openai": "o200k_base",
    "cl100k": "cl100k_base",
    "llama": "llama3",
    "qwen": "qwen3",
}
UNIT = 0x80  # characters, the size of the smallest blocks
PLACES = [
    start for start in range(0x80, 0x110000, UNIT) if not 0xD800 <= start < 0xE000
]


@pytest.mark.parametrize("family", VOCABULARIES)
def test_no_block_of_unicode_is_counted_as_less_than_half(family):
    """In a row, in groups and one by one between spaces, by the tokenizer of the family."""
    count, draw = quicktok.get_encoding(VOCABULARIES[family]).count, rng()
    for start in [*PLACES[: 0x10000 // UNIT], *PLACES[0x10000 // UNIT :: 16]]:
        letters = draw.choices([*map(chr, range(start, start + UNIT))], k=500)
        groups = ["".join(letters[at : at + 5]) for at in range(0, len(letters), 5)]
        for text in ("".join(letters), " ".join(groups), " ".join(letters)):
            assert TokenEstimator(family).count_text(text) >= count(text) / 2, hex(
                start
            )


ODD_TEXTS = {
    "joined emoji": "\u200d".join(map(chr, rng().choices(range(0x1F300, 0x1F650), k=3_000))),
    "rule": "=" * 5_000, "drawn table": "│ a │ b │\n├───┼───┤\n" * 100, "newlines": "\n" * 5_000,
    "repeated word": "internationalization" * 200, "spaces": " " * 3_000,
    "base64": "".join(rng().choices(string.ascii_letters + string.digits + "+/", k=3_000)),
    "digits": "".join(rng().choices(string.digits, k=3_000)),
    "symbols": "".join(rng().choices(string.punctuation, k=3_000)),
}  # fmt: skip


@pytest.mark.parametrize("family", VOCABULARIES)
@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_no_odd_text_is_counted_as_less_than_half_or_as_several_times_its_size(
    text, family
):
    tokens = quicktok.get_encoding(VOCABULARIES[family]).count(
        text.encode("utf-8", "replace").decode()
    )
    assert tokens / 2 <= TokenEstimator(family).count_text(text) <= 6 * tokens


@pytest.mark.parametrize("size", [0, 5, 4_095])
def test_a_margin_is_added_to_every_count(size):
    assert CharRatioCounter(margin=0.2).count_text("x" * size) == size * 12 // 40
    assert (
        TokenEstimator(margin=1.0).count_text("word " * size)
        >= 2 * TokenEstimator().count_text("word " * size) - 2
    )


class Stated:
    """A model that states its family and its name."""

    def __init__(self, family=None, name=""):
        self.tokenizer_family = family
        self.model = name


class ChatAnthropic:
    """Stands for the integration's class of that name."""


class Tuned(ChatAnthropic):
    """A subclass that nobody listed."""


@pytest.mark.parametrize(
    ("model", "family"),
    [
        *((Stated(family), family) for family in FAMILIES),
        *((odd, "generic") for odd in (Stated("zzz"), Stated(), None, 5)),
        (Tuned(), "anthropic"),
    ],
)
def test_the_family_is_what_a_model_states_or_its_class_implies(model, family):
    assert family_of(model) == family


def test_bindings_around_a_model_are_looked_through():
    named = RunnableLambda(str)
    named.tokenizer_family, named.model = "gemini", "m"
    bound = named.bind(a=1).bind(b=2)
    assert (family_of(bound), model_name(bound)) == ("gemini", "m")


ARGUMENTS = {"query": "which orders are late " * 20}
CALL = {"name": "search", "args": ARGUMENTS, "id": "c1", "type": "tool_call"}
BLOCK = {"type": "tool_use", "id": "c1", "name": "search", "input": ARGUMENTS}


def test_a_call_costs_the_same_in_every_shape():
    """Parsed, as a block, as both, or raw: a call is priced once."""
    function = {"name": "search", "arguments": ARGUMENTS}
    shapes = [
        AIMessage("", tool_calls=[CALL]),
        AIMessage([BLOCK], tool_calls=[CALL]),
        AIMessage([BLOCK]),
        AIMessage(
            [{key: value for key, value in BLOCK.items() if key != "id"}],
            tool_calls=[CALL],
        ),
        AIMessage(
            [{"type": "function_call", "id": "fc", "call_id": "c1", **function}],
            tool_calls=[CALL],
        ),
        AIMessage("", additional_kwargs={"function_call": function}),
    ]
    assert len({OPENAI([message]) for message in shapes}) == 1


def test_data_in_an_unknown_block_is_not_read_as_text():
    blob = [{"type": "weird", "payload": "QUJD" * 100_000}]
    assert OPENAI([HumanMessage(blob)]) < 10_000
    assert OPENAI([HumanMessage([{"type": "text", "text": "QUJD" * 100_000}])]) > 50_000
    assert (
        1_500
        < OPENAI([AIMessage([{"type": "redacted_thinking", "data": "QUJD" * 2_250}])])
        < 2_000
    )
    likes = [("user", "hi"), {"role": "assistant", "content": "yes"}, "hi"]
    assert OPENAI(likes) == OPENAI(
        [HumanMessage("hi"), AIMessage("yes"), HumanMessage("hi")]
    )


# ---- arguments of calls: as JSON, or as they are where models are shown them one by one -------------------------


PROGRAM = 'def main():\n\tprint("a")\n' * 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_costs_its_text_where_arguments_are_plain_and_its_escapes_elsewhere(
    family,
):
    estimator = TokenEstimator(family)
    tokens = (
        estimator([call("write", "1", text=PROGRAM)])
        - estimator([AIMessage("")])
        - FRAMING[family].call
    )
    plain = abs(tokens - estimator.count_text(f"write\ntext\n{PROGRAM}")) <= 1
    escaped = (
        abs(
            tokens
            - estimator.count_text(
                "write" + json.dumps({"text": PROGRAM}, separators=(",", ":"))
            )
        )
        <= 1
    )
    assert (plain, escaped) == (
        FRAMING[family].plain_arguments,
        not FRAMING[family].plain_arguments,
    )


# ---- features: characters and runs in the right class ------------------------------------------------------------


RARE = {"rare_two_byte", "rare_three_byte"}
SCRIPTS = {name for _, name in SCRIPT_STARTS}


def counted(text):
    found = features(text)
    return {name: count for name, count in zip(FEATURES, found, strict=False) if count}


@RUNS
@given(text=ANY_TEXT)
def test_every_character_is_counted_once(text):
    """Classes of scripts are disjoint and complete, and no count is negative; only long runs are shortened."""
    found, named = features(text), counted(text)
    foreign = sum(named.get(name, 0) for name in SCRIPTS | RARE)
    assert foreign == sum(
        not character.isascii()
        for character in text.encode("utf-8", "replace").decode()
    )
    assert named.get("characters", 0) <= len(text)
    assert min(found) >= 0


@pytest.mark.parametrize("family", FAMILIES)
def test_no_script_costs_more_than_its_bytes(family):
    """Inuktitut, Tibetan, Yi: scripts that no text has which the weights were fitted to."""
    for text in ("ᐃᓄᒃᑎᑐᑦ ᓄᓇᕗᑦ", "བོད་སྐད་ཡིག", "ꆈꌠꉙ ꁱꂷ"):
        assert TokenEstimator(family).count_text(text) <= 1.2 * len(text.encode())
