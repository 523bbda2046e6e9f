"""A name means the listed model that it spells, however it is spelled, and never one that is merely similar."""

import pytest

from langchain_ctxwin.models.names import GENERIC, Names, key_of, maker_of

LISTED = {
    ("acme", "nova-1"): ["nova"],
    ("acme", "nova-1-20250301"): [],
    ("acme", "nova-1-20250901"): [],
    ("acme", "lux-2-2025-04-05"): [],
    ("acme", "ray-latest"): [],
    ("router", "acme/nova-1"): [],
    ("router", "acme/nova-1:free"): [],
    ("router", "acme/beam"): [],
    ("cloud", "nova-1"): [],
    ("cloud", "lux-2@20250405"): [],
    ("local", "mini:8b"): [],
    (GENERIC, "house"): ["haus"],
    (GENERIC, "nova-1"): [],
}


def names(listed=None, **options):
    return Names((LISTED if listed is None else listed).items(), **options)


def meant(name, provider="", **options):
    found = names(**options).find(name, provider)
    return found and (list(found.entries), found.how)


@pytest.mark.parametrize(
    ("name", "entry", "how"),
    [
        ("acme/nova-1", ("acme", "nova-1"), "name"),
        ("ACME/Nova-1", ("acme", "nova-1"), "name"),
        ("acme/nova", ("acme", "nova-1"), "alias"),
        ("router/acme/nova-1", ("router", "acme/nova-1"), "name"),
        ("router/acme/nova-1:free", ("router", "acme/nova-1:free"), "name"),
        ("router/acme/nova-1:fast", ("router", "acme/nova-1"), "variant"),
        ("router/acme/beam:free", ("router", "acme/beam"), "variant"),
        ("acme/beam", ("router", "acme/beam"), "name"),
        ("acme/models/nova-1", ("acme", "nova-1"), "name"),
        ("acme/nova-1-2025-03-01", ("acme", "nova-1-20250301"), "variant"),
        ("acme/nova-1-20240101", ("acme", "nova-1"), "variant"),
        ("acme/nova-1-latest", ("acme", "nova-1"), "variant"),
        ("acme/nova-1@default", ("acme", "nova-1"), "variant"),
        ("lux-2", None, None),
        ("acme/lux-2", ("acme", "lux-2-2025-04-05"), "variant"),
        ("acme/lux-2-latest", ("acme", "lux-2-2025-04-05"), "variant"),
        ("acme/lux-2@20250405", ("acme", "lux-2-2025-04-05"), "variant"),
        ("acme/ray", ("acme", "ray-latest"), "variant"),
        ("house", (GENERIC, "house"), "name"),
        ("haus", (GENERIC, "house"), "alias"),
        ("acme/house", (GENERIC, "house"), "name"),
        ("mini:8b", ("local", "mini:8b"), "name"),
        (" nova ", ("acme", "nova-1"), "alias"),
    ],
)
def test_a_name_means_a_listed_model(name, entry, how):
    """Names, aliases, prefixes, dates and suffixes in any case; what several providers serve is not decided here."""
    found = meant(name)
    assert found == ([entry], how) if entry else len(found[0]) > 1


@pytest.mark.parametrize(
    "name",
    ["nova-2", "acme/lux-2-20240101", "mini", "mini:70b", "unheard/nova-1", "cloud/acme/nova-1", "/", "//", "x/"],
)
def test_a_similar_name_means_nothing(name):
    """Another date, size, version or an unknown provider is another model."""
    assert meant(name) is None


def test_an_undated_name_means_the_newest_date_of_each_provider():
    """Where only dated models are listed."""
    listed = {("acme", "x-20240101"): [], ("acme", "x-20250101"): [], ("cloud", "x-20230101"): []}
    assert meant("acme/x", listed=listed) == ([("acme", "x-20250101")], "variant")
    assert meant("x", listed=listed) == ([("acme", "x-20250101"), ("cloud", "x-20230101")], "variant")


def test_the_provider_of_the_chat_model_comes_first():
    """The same name is served elsewhere with other limits."""
    assert meant("nova-1", "cloud") == ([("cloud", "nova-1")], "name")
    assert meant("acme/nova-1", "router") == ([("router", "acme/nova-1")], "name")
    assert meant("nova", "cloud") == ([("acme", "nova-1")], "alias")


def test_a_bare_name_means_its_makers_model():
    """A brand says who makes a model; elsewhere it is listed too, and shown."""
    listed = {("anthropic", "claude-x"): [], ("cloud", "claude-x"): [], ("aaa", "claude-x"): []}
    found = names(listed).find("claude-x")
    assert (found.entries, found.others) == ((("anthropic", "claude-x"),), (("cloud", "claude-x"), ("aaa", "claude-x")))


def test_a_bare_name_without_a_maker_means_all_who_serve_it():
    """What is stated for any provider is no further provider."""
    assert meant("nova-1") == ([("acme", "nova-1"), ("cloud", "nova-1")], "name")


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("gemini-next", "google"),
        ("models/gemini-next", "google"),
        ("Chatgpt-next", "openai"),
        ("o9-mini", "openai"),
        ("vendor/claude-next", "anthropic"),
        ("deepseek-next", "deepseek"),
        ("123", ""),
        ("", ""),
    ],
)
def test_a_brand_says_who_makes_a_model(name, maker):
    """The letters before the first digit or hyphen, in the table of brands or as the provider's own name."""
    assert maker_of(name) == maker


def test_a_name_that_is_gone_means_no_other_model():
    """A dated model that was retired is not answered with the facts of its successor."""
    gone = {("acme", "nova-1-20240101"), ("old", "beam")}
    assert meant("acme/nova-1-20240101", gone=gone) is None
    assert meant("nova-1-20240101", gone=gone) is None
    assert meant("acme/nova-1-20240202", gone=gone) == ([("acme", "nova-1")], "variant")
    assert meant("nova-1", "acme", gone={("acme", "x")}) == ([("acme", "nova-1")], "name")


def test_a_name_that_a_provider_dropped_is_not_looked_for_elsewhere():
    """The chat model of that provider cannot call it."""
    assert meant("nova-1", "old", gone={("old", "nova-1")}) is None
    assert meant("nova-1", gone={("old", "nova-1")}) == ([("acme", "nova-1"), ("cloud", "nova-1")], "name")


def test_a_spelling_that_was_replaced_is_gone():
    """Providers that care about case refuse the old one; any other case is still understood."""
    recased = {(("acme", "nova-1"), "Nova-1")}
    assert meant("acme/Nova-1", recased=recased) is None
    assert meant("acme/NOVA-1", recased=recased) == ([("acme", "nova-1")], "name")
    assert meant("Nova-1", recased=recased) == ([("cloud", "nova-1")], "name")


def test_like_shows_near_names_of_the_provider_else_of_any():
    """At most three, the nearest first."""
    assert names().like("acme/nova-1-2025030") == ["acme/nova-1-20250301", "acme/nova-1-20250901", "acme/nova-1"]
    assert names().like("hause") == ["house"]
    assert names().like("zzz") == []


def test_the_key_of_a_name_has_no_case_and_no_path():
    """`models/` comes from clients, with or without what stands before it."""
    assert {key_of(name) for name in ("Nova", "models/nova", "publishers/acme/models/NOVA", " nova ")} == {"nova"}


def test_no_name_takes_long():
    """A long name of one character is searched like any other."""
    assert meant("a-" * 50_000) is None
    assert meant(":" * 50_000) is None
