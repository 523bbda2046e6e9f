"""A name means the listed model that it spells, however it is spelled, and never one that is merely similar."""

from decimal import Decimal

import pytest

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.models.names import Listing, Resolved, Statement, merged

GENERIC = ""

LISTED = {
    ("acme", "nova-1"): ["nova"],
    ("acme", "nova-1-20250301"): [],
    ("acme", "nova-1-20250901"): [],
    ("acme", "lux-2-2025-04-05"): [],
    ("acme", "ray-latest"): [],
    ("router", "acme/nova-1"): [],
    ("router", "acme/beam"): [],
    ("cloud", "nova-1"): [],
    ("cloud", "lux-2@20250405"): [],
    ("local", "mini:8b"): [],
    (GENERIC, "house"): ["haus"],
    (GENERIC, "nova-1"): [],
}


def listing(listed=LISTED):
    return Listing(claim(entry, aliases) for entry, aliases in listed.items())


def claim(entry, aliases=()):
    info = ModelInfo(name=entry[1], provider=entry[0] or None, aliases=tuple(aliases))
    return Statement(source="any", tier="provider", info=info)


def meant(name, provider="", **options):
    found = listing(**options).resolve(name, provider)
    return (found.provider or GENERIC, found.name) if found.claims else None


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("acme/nova-1", ("acme", "nova-1")),
        ("acme/nova", ("acme", "nova-1")),
        ("router:acme/nova-1", ("router", "acme/nova-1")),
        ("local:mini:8b", ("local", "mini:8b")),
        ("router/acme/nova-1", ("router", "acme/nova-1")),
        ("acme/models/nova-1", ("acme", "nova-1")),
        ("acme/nova-1-2025-03-01", ("acme", "nova-1-20250301")),
        ("acme/nova-1-20240101", ("acme", "nova-1")),
        ("acme/lux-2@20250405", ("acme", "lux-2-2025-04-05")),
        ("acme/ray", ("acme", "ray-latest")),
        ("house", (GENERIC, "house")),
        ("haus", (GENERIC, "house")),
        ("acme/house", ("acme", "house")),
        (" nova ", ("acme", "nova-1")),
    ],
)
def test_a_name_means_a_listed_model(name, entry):
    assert meant(name) == entry
    assert not listing().resolve(name).is_ambiguous


@pytest.mark.parametrize(
    "name",
    [
        "acme/beam",
        "acme/lux-2-20240101",
        "mini",
        "mini:70b",
        "unheard/nova-1",
        "/",
    ],
)
def test_a_similar_name_means_nothing(name):
    assert meant(name) is None


def test_a_bare_name_means_its_makers_model_else_all_who_serve_it():
    found = listing(
        {("anthropic", "x"): [], ("cloud", "x"): [], ("aaa", "x"): []}
    ).resolve("x")
    assert (found.provider, found.is_ambiguous) == ("anthropic", False)
    found = listing().resolve("nova-1")
    assert (found.provider, found.is_ambiguous) == ("acme", True)


@pytest.mark.parametrize("prefix", ["", "openai/", "openai:"])
def test_a_tuned_model_is_listed_under_its_base(prefix):
    """`ft:<base>:<organisation>:<name>:<id>` means `ft:<base>`, and the base alone where no list has that."""
    tuned = f"{prefix}ft:gpt-mini:mill-ltd::B7kQ2"
    base, own, other = (
        ("openai", "gpt-mini"),
        ("openai", "ft:gpt-mini"),
        ("openai", "gpt"),
    )
    assert meant(tuned, listed={base: [], own: [], other: []}) == own
    assert meant(tuned, listed={base: [], other: []}) == base
    assert meant(tuned, listed={other: []}) is None


# One value per field


def said(source="a", tier="catalog", **facts):
    return Statement(source, tier, ModelInfo(name="m", **facts))


WINDOW, INPUT = "context_window", "max_input_tokens"


@pytest.mark.parametrize(
    ("claims", "values", "sources"),
    [
        (
            [said("one", context_window=900), said("two", context_window=800)],
            {WINDOW: 800},
            {WINDOW: "two"},
        ),
        (
            [said("one", input_price=Decimal(2)), said("two", input_price=Decimal(1))],
            {"input_price": 2},
            {"input_price": "one"},
        ),
        (
            [
                said(),
                said("mine", "explicit", context_window=100),
                said("t", max_input_tokens=272),
            ],
            {INPUT: None},
            {},
        ),
        (
            [
                said("heard", "learned", max_input_tokens=300),
                said("t", context_window=200),
            ],
            {WINDOW: 300},
            {},
        ),
        (
            [said("t", context_window=100), said("u", max_output_tokens=200)],
            {"max_output_tokens": None},
            {},
        ),
        (
            [said("t", capabilities=frozenset()), said("u", deprecated=True)],
            {"deprecated": True},
            {},
        ),
        # A window that another source states as the limit of the input beside a larger window is that input limit.
        (
            [
                said("profile", "profile", context_window=272),
                said("t", context_window=400, max_input_tokens=272),
            ],
            {WINDOW: 400, INPUT: 272},
            {WINDOW: "t", INPUT: "profile"},
        ),
        (
            [
                said("mine", "explicit", context_window=272),
                said("t", context_window=400, max_input_tokens=272),
            ],
            {WINDOW: 272},
            {},
        ),
    ],
)
def test_claims_are_merged_to_one_value_per_field(claims, values, sources):
    """By trust; of catalogs the smaller limit; what contradicts a better statement leaves."""
    info = merged(Resolved(name="m", provider="p", claims=tuple(claims)))
    assert {field: getattr(info, field) for field in values} == values
    assert {field: info.provenance[field] for field in sources} == sources
