"""Pictures of a request: they stay within what its API takes, the newest in it, before and after a refusal."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.content import KNOWN_BLOCK_TYPES
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelInfo,
    ModelLimits,
    ModelRouter,
    RoutedChatModel,
    classify_overflow,
)
from langchain_ctxwin.core.model_info import RULES
from langchain_ctxwin.core.provider_blocks import (
    BYTES_SHARE,
    MEDIA_KINDS,
    MediaSize,
    hidden,
    kind_of,
    without_media,
)
from langchain_ctxwin.observe import MemorySink, NoticeEvent
from support.agents import THREAD, agent_on, ask, on_both, values
from support.fakes import ScriptedChatModel, SdkError, echo

SHOT_CHARS = 4_000


def picture(chars=SHOT_CHARS):
    return {"type": "image", "base64": "QUJD" * (chars // 4), "mime_type": "image/png"}


def looked(number, *more):
    """A step that looks at a page."""
    call = {"name": "look", "args": {}, "id": f"c{number}", "type": "tool_call"}
    content = [{"type": "text", "text": f"page {number}"}, picture(), *more]
    return [
        AIMessage("", tool_calls=[call], id=f"a{number}"),
        ToolMessage(content, tool_call_id=f"c{number}", id=f"t{number}"),
    ]


def history_of(steps):
    return [
        HumanMessage("Find it.", id="u"),
        *(message for n in range(steps) for message in looked(n)),
    ]


def images_in(messages):
    return MediaSize.of_all(messages).images


def engine_of(limits=None, **settings):
    given = limits or ModelLimits(200_000)
    return ContextEngine(given, config=ContextConfig(output_reserve=0, **settings))


def test_limits_of_a_model_may_say_how_many_pictures_and_bytes_it_takes():
    """It holds whoever states it: the model, a catalog or a candidate."""
    history = history_of(25)
    limits = ModelLimits(200_000, max_images=10, max_request_bytes=10**9)
    assert images_in(engine_of(limits).build(engine_of(limits).measure(history))) <= 10
    infos = [
        ModelInfo(name="a", context_window=200_000, max_images=10),
        ModelInfo(name="b", context_window=300_000),
    ]
    assert infos[0].limits.max_images == 10
    assert RoutedChatModel(ModelRouter(infos)).limits.max_images == 10


def test_pictures_leave_in_batches_and_a_request_extends_the_one_before():
    engine = engine_of(ModelLimits(200_000, max_images=10))
    requests = [
        engine.build(engine.measure(history_of(steps))) for steps in range(1, 31)
    ]
    assert all(images_in(request) <= 10 for request in requests)
    changed = [
        steps
        for steps, (one, two) in enumerate(pairwise(requests), 2)
        if two[: len(one)] != one
    ]
    assert changed == [11, 16, 21, 26]


def test_what_a_provider_documents_is_kept_to_ahead_of_any_refusal():
    history = history_of(120)
    for window, most in ((200_000, 100), (1_000_000, 120)):
        engine = engine_of(
            ModelInfo(name="m", provider="anthropic", context_window=window)
        )
        assert images_in(engine.build(engine.measure(history))) in range(
            most // 2, most + 1
        )
    assert (
        images_in(engine_of(ModelLimits(1_000_000)).build(engine_of().measure(history)))
        == 120
    )
    assert RULES["openai"].media_limits(8_000) == {}


class Api:
    """Takes so many pictures in a request, and refuses more in the words of a provider."""

    def __init__(self, most, refusal):
        self.most, self.refusal, self.sent = most, refusal, []

    def __call__(self, messages, tools):
        self.sent.append(images_in(messages))
        if self.sent[-1] > self.most:
            raise self.refusal
        looks = sum(isinstance(message, ToolMessage) for message in messages)
        turns = sum(isinstance(message, HumanMessage) for message in messages)
        if looks < 8 * turns:
            return AIMessage(
                "",
                tool_calls=[{"name": "look", "args": {}, "id": f"c{len(self.sent)}"}],
            )
        return echo(messages, tools)


@tool
def look() -> list:
    """Look at the page."""
    return [picture()]


def looking(adapter, api, **options):
    """An agent that looks at pages, on this API."""
    model = ScriptedChatModel(policy=api, profile={"max_input_tokens": 100_000})
    return agent_on(adapter, model, [look], **options)


BYTES = SdkError(
    "Error code: 413 - {'error': {'type': 'request_too_large'}}", status_code=413
)
IMAGES = SdkError(
    "Error code: 400 - Too much media: 0 document pages + 6 images > 5", status_code=400
)


@on_both
@pytest.mark.parametrize(
    "refusal",
    [
        BYTES,
        IMAGES,
    ],
    ids=["bytes", "images"],
)
def test_a_refusal_because_of_pictures_is_answered_with_fewer_of_them(adapter, refusal):
    """In the same turn; no later one is refused, no history leaves, and the newest picture is in each request."""
    api = Api(5, refusal)
    agent = looking(adapter, api)
    for question in ("Which is it?", "And the next?"):
        assert ask(agent, question)["messages"][-1].text.startswith("seen ")
    assert [sent > 5 for sent in api.sent].count(True) == 1
    assert all(sent > 0 for sent in api.sent[1:])
    assert values(agent)["context_report"]["dropped_turns"] == 0


def test_what_a_provider_refused_of_pictures_holds_for_its_own_model():
    engine = ContextEngine(ModelLimits(100_000))
    models = [ModelInfo(name=name, context_window=100_000) for name in "ab"]
    session, history = {}, history_of(6)
    for model in models:
        window = engine.measure(history, session=session, model=model)
        session = engine.learn(window, classify_overflow(IMAGES)).session.to_json()
    again = engine.measure(history, session=session, model=models[0])
    assert again.media["max_images"] == 5


SIZES = st.lists(
    st.builds(MediaSize, num_bytes=st.integers(0, 50), images=st.integers(0, 3)),
    min_size=1,
    max_size=30,
)
LIMITS = st.dictionaries(
    st.sampled_from(["max_bytes", "max_images"]), st.integers(1, 100)
)


@given(sizes=SIZES, limits=LIMITS)
def test_what_is_left_out_is_the_oldest_and_only_grows(sizes, limits):
    before = 0
    for count in range(1, len(sizes) + 1):
        counts = hidden([*enumerate(sizes[:count])], MediaSize(), limits)
        gone = len(counts)
        assert counts == dict.fromkeys(range(gone), 1)
        assert before <= gone < count
        left = sizes[gone:count]
        if len(left) > 1:
            assert sum(size.num_bytes for size in left) <= (
                limits.get("max_bytes", 10**9)
            )
            assert sum(size.images for size in left) <= (
                limits.get("max_images", 10**9)
            )
        before = gone


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (picture(1600), MediaSize(num_bytes=1600, images=1)),
        (
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64," + "QUJD" * 400},
            },
            MediaSize(num_bytes=1622, images=1),
        ),
        (
            {
                "type": "image_url",
                "image_url": {"url": "https://a.example/" + "x" * 400},
            },
            MediaSize(images=1),
        ),
        (
            {"type": "image", "source": {"type": "base64", "data": "QUJD" * 400}},
            MediaSize(num_bytes=1600, images=1),
        ),
        ({"type": "file", "base64": "QUJD" * 400}, MediaSize(num_bytes=1600)),
        ({"type": "text", "text": "x" * 400}, MediaSize()),
    ],
)
def test_media_are_found_in_whatever_form_they_are_stated(block, size):
    message = HumanMessage([block], id="h")
    assert MediaSize.of_all([message]) == size
    assert MediaSize.of_all([without_media(message, "h")]) == MediaSize()


CHAT = ChatOpenAI(model="gpt-4o", api_key="x")
RESPONSES = ChatOpenAI(model="gpt-5", api_key="x", use_responses_api=True)


def calls_at_once(*contents):
    calls = [
        {"name": "look", "args": {}, "id": f"c{n}"} for n, _ in enumerate(contents)
    ]
    results = [
        ToolMessage(content, tool_call_id=f"c{n}", id=f"t{n}")
        for n, content in enumerate(contents)
    ]
    return [
        HumanMessage("Look.", id="u"),
        AIMessage("", tool_calls=calls, id="a"),
        *results,
    ]


def test_chat_completions_gets_the_pictures_of_results_from_a_user():
    """Its tool messages take texts only; behind all results of a step, in their order, and no prefix changes."""
    shot, text = picture(), {"type": "text", "text": "a page"}
    history = calls_at_once([text, shot], "plain", [shot])
    engine = engine_of()
    request = engine.build(engine.measure(history, called=CHAT))
    sent = CHAT._get_request_payload(request)["messages"]
    told = [
        [part["type"] for part in one["content"]]
        for one in sent
        if isinstance(one["content"], list)
    ]
    roles = ["user", "assistant", "tool", "tool", "tool", "user"]
    assert [one["role"] for one in sent] == roles
    assert told == [["text", "text"], ["text"], ["text", "image_url", "image_url"]]
    later = [*history, AIMessage("I see.", id="b"), HumanMessage("So?", id="v")]
    longer = engine.build(engine.measure(later, called=CHAT))
    assert longer[: len(request)] == request
    assert engine.build(engine.measure(history, called=RESPONSES)) == history
    assert engine.build(engine.measure(history)) == history


def many(number):
    return [
        HumanMessage([{"type": "text", "text": "Compare."}, *shots(number)], id="u")
    ]


def shots(number):
    return [{**picture(), "alt": f"{at}"} for at in range(number)]


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ({"max_images": 4}, 4),
        ({"max_request_bytes": int(4.5 * SHOT_CHARS / BYTES_SHARE)}, 4),
        ({"max_images": 1}, 1),
        ({"max_request_bytes": 10}, 1),
    ],
)
def test_a_message_with_more_pictures_than_a_request_may_have_is_cut_to_what_fits(
    limits, shown
):
    """The first ones are lines, the last one is always there; and the report says so."""
    engine, history = engine_of(ModelLimits(200_000, **limits)), many(10)
    window = engine.measure(history)
    blocks = engine.build(window)[0].content
    assert blocks[-shown:] == shots(10)[-shown:]
    assert [block["type"] for block in blocks[:-shown]] == ["text"] * (11 - shown)
    cut = window.report["clamped"]["u"]
    assert cut[0] < cut[1]
    assert engine.measure(many(1)).report["clamped"] == {}


@on_both
def test_pictures_of_the_question_that_are_left_out_are_told_once(adapter):
    """Aloud: in the report of the state, and by an event when fewer of them are shown, by halves of the limit."""
    sink = MemorySink()
    api = Api(4, IMAGES)
    agent = looking(
        adapter, api, limits=ModelLimits(100_000, max_images=4), sinks=[sink]
    )
    agent.invoke({"messages": many(10)}, THREAD)
    told = [one for one in sink.of(NoticeEvent) if one.notice == "newest_clamped"]
    assert api.sent[0] == 4
    assert max(api.sent) <= 4
    assert {*told[0].about["shown_tokens"]} == {"u"}
    assert sum("u" in one.about["shown_tokens"] for one in told) <= 3


# Does one table say what every block of content is?

PROVIDERS_OWN = {
    "server_tool_call",
    "server_tool_call_chunk",
    "server_tool_result",
    "non_standard",
    "refusal",
}


def test_every_standard_block_of_langchain_has_a_kind_but_what_is_a_providers_own():
    kinds = {
        block_type: kind_of({"type": block_type}) for block_type in KNOWN_BLOCK_TYPES
    }
    assert {
        block_type for block_type, kind in kinds.items() if kind == "other"
    } == PROVIDERS_OWN


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("call", "tool_use function_call custom_tool_call tool_call"),
        ("result", "tool_result function_call_output"),
        ("reasoning", "thinking redacted_thinking reasoning reasoning_content"),
        ("image", "image image_url input_image"),
        *((kind, kind) for kind in sorted(MEDIA_KINDS)),
    ],
)
def test_a_block_is_the_same_in_the_forms_of_all_providers(kind, forms):
    assert {kind_of({"type": form}) for form in forms.split()} == {kind}
