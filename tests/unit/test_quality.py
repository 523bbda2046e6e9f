"""Chances of a good answer: between 0 and 1, by words, by strength, by recorded outcomes, and learned from samples."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.routing import Quality, Sample, TextWeights
from langchain_ctxwin.routing.quality import LEVELS
from langchain_ctxwin.routing.text_weights import CHEAP, DEAR, READ_CHARS, dumped, loaded, phrase_counts, shipped

SHIPPED = Quality()
texts = st.text(max_size=100) | st.lists(
    st.sampled_from(["prove", "which of the", "x = 3", "def f():", "\nB. one\nC. two", "capital", "毛"])
).map(" ".join)
strengths = st.floats(0, 1)


def samples(hard="prove", easy="name", count=20):
    """Two models that differ only on texts with one word."""
    for number in range(count):
        for model in ("small", "large"):
            yield Sample(text=f"{hard} case{number} now", model=model, success=model == "large")
            yield Sample(text=f"{easy} thing{number} now", model=model, success=True)


def advantage(quality, text):
    small, large = quality.chances(text, ["a", "b"], strengths=[0.0, 1.0])
    return large - small


# Chances


@given(texts, st.lists(strengths, max_size=4), st.booleans())
def test_chances_lie_between_0_and_1(text, given_strengths, needs_tools):
    models = [f"m{number}" for number in range(len(given_strengths))]
    chances = SHIPPED.chances(text, models, strengths=given_strengths, needs_tools=needs_tools)
    assert len(chances) == len(models)
    assert all(0 < chance < 1 for chance in chances)


@settings(max_examples=50)
@given(texts, strengths, st.lists(st.booleans(), max_size=100))
def test_a_success_never_lowers_a_chance_and_a_failure_never_raises_it(text, strength, outcomes):
    quality = Quality()
    bucket = quality.bucket(text)
    for success in outcomes:
        [before] = quality.chances(text, ["m"], strengths=[strength])
        quality.record(bucket, "m", success=success)
        [after] = quality.chances(text, ["m"], strengths=[strength])
        assert after >= before - 1e-12 if success else after <= before + 1e-12


def test_outcomes_overrule_the_strength():
    """A cheap model that does well where a dear one fails becomes the better choice, in that bucket only."""
    quality = Quality()
    text, other = "What is the capital of France?", "def f(x):\n    return x\n```python\nclass A: pass\n```"
    before = advantage(quality, other)
    for _ in range(20):
        quality.record(quality.bucket(text), "a", success=True)
        quality.record(quality.bucket(text), "b", success=False)
    assert advantage(quality, text) < -0.3
    assert advantage(quality, other) == before


def test_without_outcomes_the_stronger_model_is_likelier_right():
    """Without known phrases a model stands between the two ends by its strength, and the ends do so in every bucket."""
    chances = SHIPPED.chances("", ["a", "b", "c"], strengths=[0.0, 0.5, 1.0])
    assert chances[0] < chances[1] < chances[2]
    assert all(cheap < dear for cheap, dear in SHIPPED.weights.usual.values())


def sample(text="a", model="m", success=True):
    return Sample(text=text, model=model, success=success)


REFUSED = [
    (SHIPPED.bucket, "pass the request as a string", [None, 3, ["a"], b"a"]),
    (
        lambda strengths: SHIPPED.chances("hi", ["m"], strengths=strengths),
        *("give each a number from 0 to 1", [[], [0.5, 0.5], [-0.1], [1.1], [math.nan]]),
    ),
    (Quality().fit, "give", [[], [sample()], [sample(), sample("b")], [sample(), sample(model="n")]]),
    (Quality().fit, "give", [[sample(success=2)], [sample(success=math.nan)], [sample(None)]]),
    (loaded, "weights", ["", "{}", "[]", "no", '{"columns": ["a", "b"], "base": [1], "phrases": {}}']),
    (loaded, "weights", ['{"columns": ["a"], "base": [1], "phrases": {"phrase": [1, NaN]}}']),
]


@pytest.mark.parametrize(("call", "told", "wrong"), [(*row[:2], wrong) for row in REFUSED for wrong in row[2]])
def test_what_is_no_text_strength_sample_or_weight_is_refused(call, told, wrong):
    """Also samples from which nothing can be learned."""
    with pytest.raises(ConfigError, match=told):
        call(wrong)


# Buckets


@pytest.mark.parametrize(
    ("text", "needs_tools", "kind"),
    [
        ("Hello", False, "text"),
        ("Book a table", True, "tools"),
        ("```python\ndef f(x):\n    return g(x)\n\nclass A:\n    import json\n```", False, "code"),
        ("Solve 3 + 4 * 5 = x and 2 * x / 7 = y, then calculate the sum of x^2 and y^2, 10 times.", False, "math"),
        ("Who wrote it?\nA. Ann\nB. Bob\nC. Cem\nD. Dan", False, "choice"),
    ],
)
def test_a_bucket_names_the_kind_of_a_task(text, needs_tools, kind):
    found, level = SHIPPED.bucket(text, needs_tools=needs_tools).split("/")
    assert (found, level in LEVELS) == (kind, True)


@pytest.mark.parametrize("kind", ["code", "math", "choice", "text", "tools"])
def test_a_good_answer_is_the_less_likely_the_harder_the_level(kind):
    usual = [SHIPPED.weights.usual[f"{kind}/{level}"] for level in LEVELS]
    assert usual == sorted(usual, reverse=True)
    assert [dear for _, dear in usual] == sorted((dear for _, dear in usual), reverse=True)


def test_only_the_ends_of_a_long_text_are_read():
    filler = "a " * READ_CHARS
    counted = phrase_counts(f"begin {filler} hidden {filler} end")
    assert [word in counted for word in ("begin", "hidden", "end")] == [True, False, True]
    assert SHIPPED.bucket(filler + "```python " * 50 + filler) == SHIPPED.bucket(filler + filler)


# Learning


def test_a_quality_learns_where_the_stronger_model_is_needed_and_counts_where_the_first_one_does():
    """A word that only the stronger model copes with raises its advantage on new texts; fitting is deterministic."""
    quality = Quality()
    fitted = quality.fit(samples())
    assert advantage(fitted, "prove another") > advantage(fitted, "name another") + 0.1
    assert fitted.weights == Quality().fit(samples()).weights
    fitted.record("math/hard", "m", success=True)
    assert quality.outcomes.of("math/hard", "m").trials == 1.0


def test_a_model_with_many_samples_has_weights_of_its_own():
    fitted = Quality().fit(samples(count=120))
    assert fitted.weights.columns == (CHEAP, DEAR, "small", "large")
    small, large = fitted.chances("prove another", ["small", "large"], strengths=[1.0, 0.0])
    assert small < large


def test_the_weights_are_read_before_requests_are_routed(monkeypatch):
    shipped.cache_clear()
    quality, about = Quality(weights=SHIPPED.weights), ("a text of today", ["m"])
    monkeypatch.setattr("langchain_ctxwin.routing.text_weights.files", None)
    assert quality.chances(*about, strengths=[1.0]) == SHIPPED.chances(*about, strengths=[1.0])


# The written form


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.from_regex(r"(\w+|[^\w\s])( (\w+|[^\w\s]))?", fullmatch=True),
        st.tuples(*[st.integers(-9000, 9000).map(lambda number: number / 1000)] * 3),
        max_size=4,
    )
)
def test_weights_survive_being_written(phrases):
    weights = TextWeights(columns=(CHEAP, DEAR), base=(0.5, -1.0), phrases=phrases, usual={"text/easy": (1.0, 2.0)})
    assert loaded(dumped(weights)) == weights


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Which of the", ["which", "of", "the", "which of", "of the", "which of the"]),
        *(("7", ["0"]), ("42", ["00"]), ("365", ["000"]), ("1989", ["000"]), ("\u0663", ["0"])),
    ],
)
def test_phrases_are_words_in_a_row_and_of_a_number_only_the_length_is_kept(text, phrases):
    """Also of one in other digits than ours; from three digits on all are alike."""
    assert phrase_counts(text) == dict.fromkeys(phrases, 1)
