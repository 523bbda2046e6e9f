"""How close, how bounded and how robust are token counts?"""

import random
import string
import uuid

import pytest
import quicktok
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import CharRatioCounter, ConfigError, TokenEstimator
from langchain_ctxwin.core.edits import MAX_PARTS, leaves
from langchain_ctxwin.core.model_families import CLASS_FAMILIES, family_of, model_name
from langchain_ctxwin.core.tokens import BOUNDS, SAMPLE_ABOVE_CHARS, WEIGHTS
from langchain_ctxwin.core.tool_schemas import FRAMING

O200K = quicktok.get_encoding("o200k_base")
OPENAI = TokenEstimator("openai")
FAMILIES = sorted(WEIGHTS)
RUNS = settings(deadline=None, max_examples=150)

ANY_TEXT = st.text(st.characters(exclude_categories=()))
WORDS = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=9), min_size=1, max_size=60).map(" ".join)
ORDINARY = st.lists(st.one_of(WORDS, st.integers(0, 99_999).map(str)), min_size=1, max_size=8).map(". ".join)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT, st.binary(max_size=40))
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
KEYS = ("type", "text", "source", "image_url", "url", "data", "base64", "id", "name", "input", "content", "mime_type")
TYPES = ("text", "image", "image_url", "file", "media", "document", "tool_use", "tool_result", "non_standard", "audio")
BLOCKS = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.one_of(JSON, st.sampled_from(TYPES)), max_size=6), max_size=4
)


def exact(text: str) -> int:
    return O200K.count(text.encode("utf-8", "replace").decode())


def rng() -> random.Random:
    return random.Random(5)  # noqa: S311


def rows(count: int) -> list[str]:
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
CSV = "id,kind,amount,owner\n" + "\n".join(f"{n * 37},order,{n * 3.17:.2f},team-{n % 7}" for n in range(60))
TABLE = "| id | kind | amount |\n|----|------|--------|\n" + "\n".join(
    f"| {n} | invoice | {n * 7.31:.2f} |" for n in range(40)
)
ORDINARY_TEXTS = {
    "english": ENGLISH, "code": CODE, "json with uuids": "[" + ",\n".join(rows(30)) + "]", "chinese": CHINESE,
    "csv": CSV, "markdown table": TABLE,
}  # fmt: skip
DEGENERATE = {
    "rule": "=" * 80, "long rule": "=" * 5_000, "dashes": "-" * 200, "drawn line": "─" * 2_000,
    "drawn table": "│ a │ b │\n├───┼───┤\n" * 100, "table rules": "|---|---|---|\n" * 200, "blocks": "█▓▒░" * 500,
    "spaces": " " * 5_000, "newlines": "\n" * 5_000, "nul": "\0" * 1_000, "zero width": "\u200b" * 1_000,
    "braille": "".join(map(chr, range(0x2801, 0x28FF))) * 8, "arrows": "→⇒←↑" * 250,
    "mathematics": "∀x∈ℝ ∃y→∑∫≤≥≠ " * 100,  # noqa: RUF001
    "emoji with selectors": "❤️✨⭐️" * 200, "fullwidth": "ＡＢＣ" * 500, "private use": "\ue000\ue123" * 500,  # noqa: RUF001
    "repeated word": "internationalization" * 200, "one letter": "a" * 5_000, "lone surrogates": "\ud800" * 1_000,
    "random chinese": "".join(map(chr, rng().choices(range(0x4E00, 0x9FFF), k=3_000))),
    "random latin": "".join(map(chr, rng().choices(range(0xA1, 0xFF), k=2_000))),
    "rare ideographs": "".join(map(chr, rng().choices(range(0x20000, 0x2A6D0), k=1_000))),
}  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY_TEXTS.values(), ids=ORDINARY_TEXTS)
def test_ordinary_text_is_within_a_quarter_of_the_exact_count(text):
    """The kinds of text that agents read are priced close to a real tokenizer."""
    assert OPENAI.count_text(text) == pytest.approx(exact(text), rel=0.25)


@pytest.mark.parametrize("text", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_text_is_priced_in_the_right_order_of_magnitude(text):
    """No odd string is close to free, and none costs many times what it should."""
    assert 0.4 <= OPENAI.count_text(text) / exact(text) <= 3


@pytest.mark.parametrize("family", FAMILIES)
def test_no_class_of_characters_is_free_in_any_family(family):
    """A string of one class costs at least a token for sixteen of its characters; tokenizers know long runs."""
    estimator = TokenEstimator(family)
    runs = {"spaces", "newlines", "rule", "long rule", "dashes"}
    costs = {name: estimator.count_text(text) / len(text) for name, text in DEGENERATE.items() if name not in runs}
    assert {name: cost for name, cost in costs.items() if cost < 1 / 16} == {}


@RUNS
@given(text=ANY_TEXT, family=st.sampled_from(FAMILIES))
def test_any_text_has_a_count(text, family):
    """Lone surrogates and control characters included, a count is a number of at least 0, and 0 only for no text."""
    assert (TokenEstimator(family).count_text(text) > 0) is bool(text)


@RUNS
@given(first=ORDINARY, second=ORDINARY.map("\n{}".format))
def test_counts_add_up(first, second):
    """The count of two texts is that of their concatenation, where no word is torn."""
    whole = OPENAI.count_text(first + second)
    assert abs(OPENAI.count_text(first) + OPENAI.count_text(second) - whole) <= 2


@RUNS
@given(text=ORDINARY, more=ORDINARY)
def test_more_text_never_costs_less(text, more):
    """Appending grows the count, up to the token that two words may share."""
    assert OPENAI.count_text(text + more) >= OPENAI.count_text(text) - 1


def test_a_long_text_is_sampled_and_still_close():
    """Past the threshold windows are counted, and the result stays near the full count."""
    text = (ENGLISH + CODE) * 60
    full = sum(OPENAI.count_text(part) for part in [ENGLISH, CODE] * 60)
    assert len(text) > SAMPLE_ABOVE_CHARS
    assert OPENAI.count_text(text) == pytest.approx(full, rel=0.1)


@RUNS
@given(content=BLOCKS, tools=st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=4), max_size=2))
def test_any_content_and_any_tool_has_a_count(content, tools):
    """Blocks and definitions of any JSON-like shape are priced."""
    for message in (HumanMessage, AIMessage):
        made = message.model_construct(content=content)
        assert OPENAI([made], tools=tools) >= FRAMING["openai"].request
        assert CharRatioCounter()([made], tools=tools) >= 0


@RUNS
@given(tokens=st.integers(0, 10**7), family=st.sampled_from(FAMILIES))
def test_the_bounds_enclose_the_count(tokens, family):
    """Upper is at least the count, lower at most."""
    estimator = TokenEstimator(family)
    assert estimator.lower(tokens) <= tokens <= estimator.upper(tokens)


def test_a_generic_estimate_has_the_widest_bounds():
    """A family that is not known may be any of them."""
    upper, lower = BOUNDS["generic"]
    assert (upper, lower) == (max(high for high, _ in BOUNDS.values()), min(low for _, low in BOUNDS.values()))


@RUNS
@given(text=ANY_TEXT)
def test_the_char_ratio_counter_is_the_published_heuristic(text):
    """A quarter of the characters, or two fifths with 2.5 characters a token."""
    assert CharRatioCounter().count_text(text) == len(text) // 4
    assert CharRatioCounter(2.5).count_text(text) == len(text) * 2 // 5


@pytest.mark.parametrize("size", [0, 1, 5, 10, 999, 4_095, 65_537])
def test_a_margin_is_added_to_every_count(size):
    """A fifth more is exactly a fifth more, whatever binary fractions make of it."""
    assert CharRatioCounter(margin=0.2).count_text("x" * size) == size * 12 // 40
    assert TokenEstimator(margin=1.0).count_text("word " * size) >= 2 * TokenEstimator().count_text("word " * size) - 2


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("counter", [TokenEstimator, CharRatioCounter])
def test_a_margin_that_is_no_share_is_refused(counter, margin):
    """The error names the value."""
    with pytest.raises(ConfigError, match=f"margin={margin}"):
        counter(margin=margin)


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf")])
def test_a_ratio_that_divides_nothing_is_refused(ratio):
    """Characters per token are positive and finite."""
    with pytest.raises(ConfigError, match="chars_per_token"):
        CharRatioCounter(ratio)


def test_an_unknown_family_is_refused_with_the_known_ones():
    """Who misspells a family sees the list."""
    with pytest.raises(ConfigError, match=r"family='Claude' is unknown: use one of anthropic, .*qwen"):
        TokenEstimator("Claude")


def test_every_family_has_weights_framing_and_bounds():
    """The generated module and the published constants name the same families, and every listed class has one."""
    assert set(WEIGHTS) == set(FRAMING) == set(BOUNDS)
    assert set(CLASS_FAMILIES.values()) <= set(WEIGHTS)


class Stated:
    """A model that states its family and its name."""

    def __init__(self, family=None, name=""):
        self.tokenizer_family = family
        self.model = name
        self.bound = None


class ChatAnthropic:
    """Stands for the integration's class of that name."""


class Tuned(ChatAnthropic):
    """A subclass that nobody listed."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stated_family_counts(family):
    """What a model says of itself comes first."""
    assert family_of(Stated(family)) == family


@pytest.mark.parametrize(
    ("model", "family"),
    [(Stated("zzz"), "generic"), (Stated(), "generic"), (Tuned(), "anthropic"), (None, "generic"), (5, "generic")],
)
def test_what_nobody_knows_is_generic(model, family):
    """A family without weights is as good as none; a class counts through its bases."""
    assert family_of(model) == family


def test_bindings_are_looked_through_and_end():
    """A binding shows its model; one that binds itself in a circle has an end."""
    outer, inner, model = Stated(), Stated(), Stated("gemini", "m")
    outer.bound, inner.bound = inner, model
    assert (family_of(outer), model_name(outer)) == ("gemini", "m")
    model.bound = outer
    assert family_of(outer) in FRAMING


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
        AIMessage([{key: value for key, value in BLOCK.items() if key != "id"}], tool_calls=[CALL]),
        AIMessage([{"type": "function_call", "id": "fc", "call_id": "c1", **function}], tool_calls=[CALL]),
        AIMessage("", additional_kwargs={"tool_calls": [{"id": "c1", "function": function}]}),
        AIMessage("", additional_kwargs={"function_call": function}),
    ]
    assert len({OPENAI([message]) for message in shapes}) == 1


def test_a_call_that_tool_calls_do_not_state_is_not_free():
    """Blocks are matched by id, so that a second one counts beside the first."""
    one = OPENAI([AIMessage([BLOCK], tool_calls=[CALL])])
    two = OPENAI([AIMessage([BLOCK, {**BLOCK, "id": "c2"}], tool_calls=[CALL])])
    assert two - one > 80


def test_every_part_of_a_conversation_is_counted():
    """Names, results, reasoning and refusals add to the price; signatures and their like do not."""
    empty = OPENAI([AIMessage("")])
    thinking = {"type": "thinking", "thinking": "a longer thought " * 20, "signature": "A" * 9_000}
    assert OPENAI([AIMessage([thinking])]) - empty == pytest.approx(exact("a longer thought " * 20), rel=0.3)
    assert OPENAI([AIMessage([{"type": "refusal", "refusal": "no " * 50}])]) - empty > 30
    assert OPENAI([HumanMessage("hi", name="a_long_user_name")]) > OPENAI([HumanMessage("hi")])
    assert OPENAI([ToolMessage("ok", tool_call_id="c1")]) > OPENAI([SystemMessage("ok")])


def test_data_in_an_unknown_block_is_not_read_as_text():
    """Base64 that no rule knows is priced as a file, not by its letters."""
    blob = [{"type": "weird", "payload": "QUJD" * 100_000}]
    assert OPENAI([HumanMessage(blob)]) < 10_000
    assert OPENAI([HumanMessage([{"type": "text", "text": "QUJD" * 100_000}])]) > 50_000
    assert 1_500 < OPENAI([AIMessage([{"type": "redacted_thinking", "data": "QUJD" * 2_250}])]) < 2_000


def test_a_block_that_contains_itself_ends():
    """Cyclic values are looked at so many times, not forever."""
    block = {"type": "weird", "note": "x"}
    block["self"] = [block, block]
    assert 0 < sum(1 for _ in leaves(block)) <= MAX_PARTS
    assert OPENAI([HumanMessage.model_construct(content=[block])]) > 0


def test_message_likes_are_converted():
    """Tuples, dicts and strings count as the messages they stand for."""
    assert OPENAI([("user", "hi"), {"role": "assistant", "content": "yes"}, "hi"]) == OPENAI(
        [HumanMessage("hi"), AIMessage("yes"), HumanMessage("hi")]
    )
