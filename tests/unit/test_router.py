"""Does the router choose what fits, then what is worth it, and say why?"""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_ctxwin import ContextOverflow, ModelLimits, TokenEstimator
from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.errors import ConfigError, NoModelFitsError, UnknownModelError
from langchain_ctxwin.routing import ModelRouter
from langchain_ctxwin.routing.candidates import (
    LONG_CHARS,
    RouteRequest,
    Size,
    judged,
)
from support.fakes import ScriptedChatModel
from support.routing import add, exact, info, likely, scripted


class Writer(ScriptedChatModel):
    """Is set to write so many tokens."""

    max_tokens: int = 0


def of_infos(*infos, chances=None, **options):
    """Return a router over mere facts, with these chances, else chances by price."""
    config = options.pop("config", None)
    return ModelRouter(list(infos), **likely(chances, config), **options)


def two(price="1", other_price="1", **options):
    """Return a router over a small `a` and a larger `b`."""
    return of_infos(info("a", 8_192, price), info("b", 128_000, other_price), **options)


THREE = (info("a", 8_192, "1"), info("b", 128_000, "10"), info("c", 128_000, "30"))


def chosen(routes, text="hi", **call):
    return routes.route(text, **call).name


def test_the_cheapest_that_is_strong_enough_is_taken():
    """By rank of price; complexity as the caller says, as all are taken for, as judged, as a function says."""
    routes = ModelRouter(THREE)
    assert [chosen(routes, complexity=one) for one in ("low", "medium", "high")] == [
        "a",
        "b",
        "c",
    ]
    assert [
        chosen(routes, text)
        for text in ("hi", "Prove it.", "Prove it, and why `f(x) == x`.")
    ] == ["a", "b", "c"]
    assert chosen(ModelRouter(THREE, config=RoutingConfig(complexity="high"))) == "c"
    assert chosen(ModelRouter(THREE, classify=lambda messages, tools: "medium")) == "b"
    cheap = RoutingConfig(cost=1, quality=0.01)
    assert chosen(ModelRouter(THREE, config=cheap), complexity="high") == "a"
    unpriced = info("u", 8_192)  # may cost anything
    assert chosen(ModelRouter([unpriced, *THREE]), complexity="low") == "a"
    assert chosen(ModelRouter(THREE, strengths={"a": 1.0}), complexity="high") == "a"
    with pytest.raises(
        ConfigError, match="complexity='huge': give one of low, medium, high"
    ):
        routes.route("hi", complexity="huge")


@pytest.mark.parametrize(
    ("text", "complexity"),
    [
        *(
            (plain, "low")
            for plain in (
                "",
                "Hi",
                "What is 2+2?",
                "Danke!",
                "word " * (LONG_CHARS // 5 - 1),
            )
        ),
        *(
            (one, "medium")
            for one in (
                "word " * LONG_CHARS,
                "Prove it.",
                "`f(x)` fails",
                "1, 2 and 3",
                "Who? When?",
            )
        ),
        ("Use search_orders for mine.", "medium"),
        *(
            (two, "high")
            for two in ("Refactor f(x) now.", "Why? And how much is 3 * 4 + 5?")
        ),
    ],
)
def test_each_sign_of_work_raises_the_complexity(text, complexity):
    """The latest user message counts, whatever stands around it."""
    history = [
        SystemMessage("Prove it."),
        HumanMessage("Prove it."),
        HumanMessage(text),
        AIMessage("Why? Who?"),
    ]
    assert judged(history, [{"name": "search_orders"}]) == complexity


def test_outcomes_of_this_kind_of_task_overrule_the_price():
    """Ten good answers make a cheap model strong enough, four bad ones take that from any."""
    routes = two("1", "10")
    route = routes.route("hi", [add], complexity="high")
    assert (route.name, route.bucket) == ("b", "tools/high")
    for _ in range(10):
        routes.record({**route.metadata(), "model": "a"}, True)
    assert chosen(routes, tools=[add], complexity="high") == "a"
    assert chosen(routes, complexity="high") == "b"
    for _ in range(4):
        routes.record(routes.route("hi", complexity="low"), False)
    assert chosen(routes, complexity="low") == "b"


def test_a_conversation_moves_up_for_a_hard_request_and_never_down():
    """What only looks harder than before does not break the prompt cache."""
    routes = ModelRouter(THREE)
    hard = "Prove it, and why `f(x) == x`."
    names = [
        chosen(routes, text, conversation="c")
        for text in ("hi", "Prove it.", hard, "thanks")
    ]
    assert names == ["a", "a", "c", "c"]
    assert [
        chosen(routes, complexity=one, conversation="d")
        for one in ("low", "medium", "low")
    ] == ["a", "b", "b"]


ESTIMATOR = TokenEstimator("openai")


@pytest.mark.parametrize(
    ("counter", "upper_of"),
    [
        (ESTIMATOR, ESTIMATOR.upper),
        (count_tokens_approximately, lambda tokens: ceil(tokens * 1.2)),
    ],
)
def test_the_upper_bound_of_a_counter_decides(counter, upper_of):
    """An estimator's own quantile; a plain callable, which says nothing of its errors, gets a fifth on top."""
    upper = upper_of(counter([HumanMessage("word " * 800)]))
    request = RouteRequest(messages=[HumanMessage("word " * 800)], reserve=0)
    larger, liked = info("b", 128_000), {"a": 1, "b": 0}
    for window, name in ((upper, "a"), (upper - 1, "b")):
        options = {"counter": counter, "chances": liked}
        routes = of_infos(info("a", window), larger, **options)
        assert routes.decide(request).name == name


def sized(tokens, **wish):
    """Return a request whose size was measured."""
    size = Size(tokens=tokens, upper=tokens, lower=tokens)
    return RouteRequest(messages=[], sizes={"generic": size}, **wish)


@pytest.mark.parametrize(
    ("wish", "kept"),
    [
        ({"reserve": 1_000, "output_tokens": 2_000}, 1_000),
        ({"reserve": 0, "output_tokens": 2_000}, 0),
        ({"output_tokens": 2_000}, 2_000),
        ({}, 2_048),
    ],
)
def test_the_first_stated_reserve_is_kept_for_the_answer(wish, kept):
    """That of the caller, of the call, then the candidate's own.

    Only the output of the call is compared with what a model can write.
    """
    routes = of_infos(info("a", 8_192))
    assert routes.decide(sized(8_192 - kept, **wish)).name == "a"
    with pytest.raises(NoModelFitsError):
        routes.decide(sized(8_193 - kept, **wish))
    routes = of_infos(info("a", 8_192, max_output_tokens=1_000))
    with pytest.raises(
        NoModelFitsError, match="can write 1,000 tokens, the request asks for 1,001"
    ):
        routes.decide(RouteRequest(messages=[], reserve=0, output_tokens=1_001))


def test_each_tokenizer_family_counts_for_itself():
    text = "word " * 3_000
    counts = {
        family: TokenEstimator(family)([HumanMessage(text)])
        for family in ("openai", "anthropic")
    }
    routes = of_infos(
        *(info(family, 128_000, tokenizer_family=family) for family in counts)
    )
    assert {
        name: routes.route(text, prefer=name).estimated_tokens for name in counts
    } == counts


@pytest.mark.parametrize(
    ("states", "content", "tools", "requires", "lacking"),
    [
        ({"images"}, "hi", [add], (), "tools"),
        (
            {"tools"},
            [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
            [],
            (),
            "images",
        ),
        ({"tools"}, "hi", [], ("structured_output",), "structured_output"),
    ],
)
def test_a_candidate_that_lacks_a_capability_is_left_out(
    states, content, tools, requires, lacking
):
    """What a candidate states not to have rules it out; what nobody states does not."""
    models = [
        info("able", 8_192, "9"),
        info("unable", 8_192, "1", capabilities=frozenset(states)),
    ]
    request = RouteRequest(
        messages=[HumanMessage(content)], tools=tools, requires=requires
    )
    route = of_infos(*models).decide(request)
    assert (route.name, route.rejected["unable"]) == (
        "able",
        f"cannot do {lacking!r}, which the request needs",
    )


def test_the_largest_window_takes_what_may_still_fit():
    """Between the lower and the upper bound a request may be sent; beyond it is refused here."""
    routes = of_infos(info("small", 512), info("large", 1_400), counter=exact)
    route = routes.route("word " * 1_000)
    reason = f"largest window: nothing else fits {route.estimated_tokens:,} tokens"
    assert (route.name, route.reason) == ("large", reason)
    too_large = RouteRequest(messages=[HumanMessage("word " * 2_000)])
    with pytest.raises(NoModelFitsError):
        routes.decide(too_large)
    assert routes.decide(replace(too_large, shrinks=True)).name == "large"


@pytest.mark.parametrize(
    "leaving", [{}, {"prefer": "b"}, {"sizes": sized(50_000).sizes}]
)
def test_a_conversation_stays_with_its_model_while_it_can(leaving):
    """Though another is better now. A size or a wish ends the stay."""
    liked = {"a": 0.9, "b": 0.5}
    routes = two(chances=liked)
    assert routes.route("hi", conversation="one").name == "a"
    liked.update(a=0.1, b=0.9)
    more = [HumanMessage("more")]
    route = routes.decide(RouteRequest(messages=more, conversation="one", **leaving))
    assert route.name == routes.kept("one") == ("b" if leaving else "a")
    assert leaving or route.reason == "kept: the conversation's prompt cache"
    assert routes.route("more", conversation="two").name == "b"


def test_a_refusal_without_a_limit_says_nothing_to_other_conversations():
    routes = of_infos(info("a", 128_000))
    routes.refused(routes.decide(sized(40_000)), ContextOverflow())
    assert routes.candidate("a").limits == ModelLimits(128_000)
    routes.refused(
        routes.decide(sized(80_000)), ContextOverflow(limit=64_000, actual=80_000)
    )
    assert routes.candidate("a").limits == ModelLimits(64_000)


def test_the_limits_are_the_smallest():
    """A request within them fits each candidate, whatever output each is set to write: that of one may fill another."""
    models = [
        info("a", 8_192),
        info("b", 128_000, max_output_tokens=1_000),
        info("c", 64_000, max_input_tokens=5_000),
    ]
    limits = of_infos(*models).limits
    assert limits == ModelLimits(8_192, 5_000, 1_000)
    assert limits.input_limit(limits.output_reserve()) == 5_000
    writer, small = (
        scripted("writer", 200_000, max_tokens=100_000, kind=Writer),
        scripted("small", 128_000),
    )
    limits = ModelRouter([writer, small], **likely()).limits
    assert limits.input_limit(limits.output_reserve()) == 96_000


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        ([], ConfigError, "candidates is empty"),
        (None, ConfigError, "pass a list"),
        ([42], ConfigError, "int is no chat model"),
        ({"mine": 42}, ConfigError, "int is no chat model"),
        (
            [info("a", None)],
            UnknownModelError,
            "context window of candidate 'a' is unknown",
        ),
        (["maker:nobody"], UnknownModelError, "'maker:nobody' is listed by no source"),
    ],
)
def test_unusable_candidates_are_refused_before_any_call(candidates, error, message):
    with pytest.raises(error, match=message):
        ModelRouter(candidates, **likely())


def test_what_is_no_registry_is_refused():
    with pytest.raises(
        ConfigError, match=r"registry=\{\}: pass a ModelRegistry, or None"
    ):
        ModelRouter(THREE, registry={})


windows = st.lists(st.integers(300, 200_000), min_size=1, max_size=5, unique=True)
sizes = st.lists(st.integers(0, 60_000), min_size=1, max_size=8)


@given(windows=windows, sizes=sizes, reserve=st.none() | st.integers(0, 4_000))
@example(windows=[300], sizes=[0], reserve=300)
def test_what_is_chosen_fits_and_everyone_is_accounted_for(windows, sizes, reserve):
    """Over whole conversations: the size is within the limit, and rejected + chosen = candidates."""
    routes = of_infos(*(info(f"m{w}", w, str(w)) for w in windows))
    names = {f"m{w}" for w in windows}
    for size in sizes:
        request = sized(size, reserve=reserve, conversation="c")
        if all(one.input_limit(request) < max(1, size) for one in routes.candidates):
            with pytest.raises(NoModelFitsError) as caught:
                routes.decide(request)
            assert all(f"{name}: " in str(caught.value) for name in names)
            continue
        route = routes.decide(request)
        limits = routes.candidate(route.name).limits
        assert size <= limits.input_limit(limits.output_reserve(reserve))
        assert sorted([route.name, *route.rejected]) == sorted(names)
