"""A name means the listed model that it spells, however it is spelled, and never one that is merely similar."""

import pytest

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.models.merging import Claim
from langchain_ctxwin.models.names import GENERIC, Listing, key_of, maker_of

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


def listing(listed=LISTED, *, gone=()):
    before = Listing(map(claim, [*listed, *gone]))
    return Listing((claim(entry, aliases) for entry, aliases in listed.items()), before)


def claim(entry, aliases=()):
    info = ModelInfo(name=entry[1], provider=entry[0] or None, aliases=tuple(aliases))
    return Claim(source="any", tier="provider", info=info)


def meant(name, provider="", **options):
    found = listing(**options).resolve(name, provider)
    return ((found.provider or GENERIC, found.name), found.how) if found.how else None


@pytest.mark.parametrize(
    ("name", "entry", "how"),
    [
        ("acme/nova-1", ("acme", "nova-1"), "name"),
        ("ACME/Nova-1", ("acme", "nova-1"), "name"),
        ("acme/nova", ("acme", "nova-1"), "alias"),
        ("acme:nova-1", ("acme", "nova-1"), "name"),
        ("acme:nova-1:free", ("acme", "nova-1"), "variant"),
        ("router:acme/nova-1", ("router", "acme/nova-1"), "name"),
        ("local:mini:8b", ("local", "mini:8b"), "name"),
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
    assert meant(name) == (entry, how)
    assert not listing().resolve(name).is_ambiguous


@pytest.mark.parametrize(
    "name",
    ["nova-2", "acme/lux-2-20240101", "mini", "mini:70b", "unheard/nova-1", "cloud/acme/nova-1", "/", "//", "x/"],
)
def test_a_similar_name_means_nothing(name):
    assert meant(name) is None


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("vertex_ai/claude-x", ("google-vertex-anthropic", "claude-x")),
        ("vertex_ai/gemini-x", ("google-vertex", "gemini-x")),
        ("google_vertexai:claude-x", ("google-vertex-anthropic", "claude-x")),
        ("google_genai:gemini-x", ("google", "gemini-x")),
        ("gemini/gemini-x", ("google", "gemini-x")),
        ("bedrock_converse:anthropic.claude-x", ("amazon-bedrock", "anthropic.claude-x")),
    ],
)
def test_providers_are_known_as_langchain_and_litellm_spell_them(name, entry):
    platforms = {("google-vertex-anthropic", "claude-x"), ("google-vertex", "gemini-x"), ("google", "gemini-x")}
    listed = dict.fromkeys([*platforms, ("amazon-bedrock", "anthropic.claude-x"), ("anthropic", "claude-x")], ())
    assert meant(name, listed=listed)[0] == entry


def test_an_undated_name_means_the_newest_date_of_each_provider():
    listed = {("acme", "x-20240101"): [], ("acme", "x-20250101"): [], ("cloud", "x-20230101"): []}
    assert meant("acme/x", listed=listed) == (("acme", "x-20250101"), "variant")
    found = listing(listed).resolve("x")
    assert (found.provider, found.others, found.is_ambiguous) == ("acme", ("cloud/x-20230101",), True)


def test_the_provider_of_the_chat_model_comes_first():
    assert meant("nova-1", "cloud") == (("cloud", "nova-1"), "name")
    assert meant("acme/nova-1", "router") == (("router", "acme/nova-1"), "name")
    assert meant("nova", "cloud") == (("acme", "nova-1"), "alias")


def test_a_bare_name_means_its_makers_model_else_all_who_serve_it():
    listed = {("anthropic", "claude-x"): [], ("cloud", "claude-x"): [], ("aaa", "claude-x"): []}
    found = listing(listed).resolve("claude-x")
    assert (found.provider, found.others, found.is_ambiguous) == (
        "anthropic",
        ("cloud/claude-x", "aaa/claude-x"),
        False,
    )
    found = listing().resolve("nova-1")
    assert (found.provider, found.others, found.is_ambiguous) == ("acme", ("cloud/nova-1",), True)


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
    gone = {("acme", "nova-1-20240101"), ("old", "nova-1")}
    assert meant("acme/nova-1-20240101", gone=gone) is None
    assert meant("nova-1-20240101", gone=gone) is None
    assert meant("acme/nova-1-20240202", gone=gone) == (("acme", "nova-1"), "variant")
    assert meant("nova-1", "acme", gone=gone) == (("acme", "nova-1"), "name")
    assert meant("nova-1", "old", gone=gone) is None
    assert meant("nova-1", gone=gone) == (("acme", "nova-1"), "name")


def test_a_spelling_that_was_replaced_is_gone():
    gone = {("acme", "Nova-1")}
    assert meant("acme/Nova-1", gone=gone) is None
    assert meant("acme/NOVA-1", gone=gone) == (("acme", "nova-1"), "name")
    assert meant("Nova-1", gone=gone) == (("cloud", "nova-1"), "name")


def test_like_shows_near_names_of_the_provider_else_of_any():
    assert listing().like("acme/nova-1-2025030") == ["acme/nova-1-20250301", "acme/nova-1-20250901", "acme/nova-1"]
    assert listing().like("hause") == ["house"]
    assert listing().like("zzz") == []


def test_the_key_of_a_name_has_no_case_and_no_path():
    assert {key_of(name) for name in ("Nova", "models/nova", "publishers/acme/models/NOVA", " nova ")} == {"nova"}


def test_no_name_takes_long():
    assert meant("a-" * 50_000) is None
    assert meant(":" * 50_000) is None


@pytest.mark.parametrize("prefix", ["", "openai/", "openai:"])
def test_a_tuned_model_is_listed_under_its_base(prefix):
    """`ft:<base>:<organisation>:<name>:<id>` means `ft:<base>`, and the base alone where no list has that."""
    tuned = f"{prefix}ft:gpt-mini:mill-ltd::B7kQ2"
    base, own, other = ("openai", "gpt-mini"), ("openai", "ft:gpt-mini"), ("openai", "gpt")
    assert meant(tuned, listed={base: [], own: [], other: []}) == (own, "name")
    assert meant(tuned, listed={base: [], other: []}) == (base, "name")
    assert meant(tuned, listed={other: []}) is None
