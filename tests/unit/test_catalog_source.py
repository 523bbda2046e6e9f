"""Are both shapes of public catalogs read, row by row, from whatever file they are in?"""

import gzip
import json
from datetime import date
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources import CatalogSource
from langchain_ctxwin.models.sources.http import SourceError
from support.model_shapes import CATALOG, PRICE_TABLE


@pytest.fixture
def catalog(tmp_path):
    """Write a document and return the source that reads it."""

    def written(document, name="api.json"):
        path = tmp_path / name
        text = json.dumps(document).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return CatalogSource(path)

    return written


def info(name, **facts):
    return ModelInfo(name=name, provenance=dict.fromkeys(facts, "api.json"), **facts)


def one_price_row(**row):
    return {"m": {"litellm_provider": "maker", **row}}


def test_a_catalog_of_providers_is_read(catalog):
    """Provider and name stay apart, and a limit or price of nothing is unknown."""
    assert catalog(CATALOG).fetch(None) == [
        info(
            "test-pro",
            provider="maker",
            context_window=400_000,
            max_input_tokens=272_000,
            max_output_tokens=128_000,
            input_price=Decimal("1.25"),
            output_price=Decimal(10),
            cache_read_price=Decimal("0.125"),
            capabilities=frozenset({"text", "tools", "reasoning", "temperature", "images", "pdf"}),
            deprecated=True,
        ),
        info("maker/test-pro", provider="gateway"),
    ]


def test_a_price_table_is_read(catalog):
    """Its input limit is the window; the row that explains the others is none."""
    assert catalog(PRICE_TABLE).fetch(None) == [
        info(
            "test-pro",
            provider="maker",
            context_window=128_000,
            max_output_tokens=4096,
            input_price=Decimal("0.25"),
            output_price=Decimal(2),
            cache_read_price=Decimal("0.025"),
            capabilities=frozenset({"text", "tools", "images"}),
            retires_on=date(2099, 5, 31),
        ),
        info("test-old", provider="maker", context_window=32_000),
        info("test-verse@1", provider="google-vertex-anthropic", context_window=200_000),
    ]


def test_the_oldest_field_is_the_output_limit_where_one_is_stated(catalog):
    """And not a window."""
    [found] = catalog(one_price_row(max_tokens=4096, max_output_tokens=4096)).fetch(None)
    assert (found.context_window, found.max_output_tokens) == (None, 4096)


def test_a_gateways_model_keeps_the_slash_of_its_name(catalog):
    """Only the provider's own prefix is no part of the name."""
    row = {"litellm_provider": "openrouter", "max_input_tokens": 8192}
    [found] = catalog({"openrouter/maker/test-pro": row}).fetch(None)
    assert (found.provider, found.name) == ("openrouter", "maker/test-pro")


@pytest.mark.parametrize(
    ("row", "limits"),
    [
        ({"max_input_tokens": "128k", "max_output_tokens": "4e3"}, (128_000, 4000)),
        ({"max_input_tokens": 0, "max_output_tokens": None}, (None, None)),
        ({"max_input_tokens": -1, "max_output_tokens": "much"}, (None, None)),
        ({"max_input_tokens": 4096, "max_output_tokens": 8192}, (4096, None)),
        ({"max_input_tokens": float("nan"), "max_output_tokens": float("inf")}, (None, None)),
    ],
)
def test_strange_limits_are_read_or_unknown(catalog, row, limits):
    """An output limit above the window is not believed."""
    [found] = catalog(one_price_row(**row)).fetch(None)
    assert (found.context_window, found.max_output_tokens) == limits


def test_a_row_that_says_nothing_of_tools_states_no_capabilities(catalog):
    """A set that lacks tools would say that there are none."""
    [found] = catalog(one_price_row(supports_vision=True)).fetch(None)
    assert found.capabilities == frozenset()


def test_a_row_without_tools_states_so(catalog):
    """The set is not empty, which would be unknown."""
    [found] = catalog(one_price_row(supports_function_calling=False)).fetch(None)
    assert found.capabilities == frozenset({"text"})


def test_rows_that_cannot_be_read_are_counted(catalog):
    """The others are not lost with them."""
    document = {
        "maker": {"models": {"good": {}, "": {}, "bad": 7, "\x1b[31m": {}}},
        "m": {"litellm_provider": 3},
        "n": [],
    }
    with capture_logs() as logs:
        names = [found.name for found in catalog(document).fetch(None)]
    assert names == ["good"]
    assert [(log["event"], log["skipped"]) for log in logs] == [("models.catalog_rows_skipped", 5)]


def test_a_packed_catalog_is_unpacked(catalog):
    assert len(catalog(CATALOG, "api.json.gz").fetch(None)) == 2


def test_a_replaced_file_is_read_anew(catalog):
    source = catalog({"maker": {"models": {"old": {}}}})
    assert [found.name for found in source.fetch(None)] == ["old"]
    catalog({"maker": {"models": {"new": {}}}})
    assert [found.name for found in source.fetch(None)] == ["new"]


@pytest.mark.parametrize("name", ["test-pro", "maker/test-pro"])
def test_one_model_is_found_with_its_provider_or_without(catalog, name):
    """A gateway's name that looks the same is found too: who is meant is decided elsewhere."""
    providers = [found.provider for found in catalog(CATALOG).fetch(name)]
    assert providers == (["maker"] if name == "test-pro" else ["maker", "gateway"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no JSON"),
        (b"<html>", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\x1f\x8bbroken", "is no JSON"),
        (gzip.compress(b"{}", mtime=0)[:-4], "is no JSON"),
        (b"[]", "has no models"),
        (b'{"models": {"m": 1}}', "has no models"),
    ],
)
def test_a_file_that_is_no_catalog_is_a_typed_error(tmp_path, content, reason):
    """The text names the file."""
    path = tmp_path / "api.json"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"api\.json {reason}"):
        CatalogSource(path).fetch(None)


def test_a_file_that_is_not_there_is_a_typed_error(tmp_path):
    with pytest.raises(SourceError, match=r"api\.json cannot be read: No such file"):
        CatalogSource(tmp_path / "api.json").fetch(None)


def test_a_file_that_unpacks_without_end_is_left(tmp_path, monkeypatch):
    """No more than the limit is unpacked."""
    monkeypatch.setattr("langchain_ctxwin.models.sources.catalog.MAX_BYTES", 100)
    path = tmp_path / "api.json.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(SourceError, match="is no JSON of at most 100 bytes"):
        CatalogSource(path).fetch(None)


def test_a_catalog_needs_a_place():
    with pytest.raises(ConfigError, match="path_or_url=''"):
        CatalogSource("")


def test_a_catalog_is_called_after_its_place():
    """Neither a name nor a cache key holds what follows the path of a URL."""
    source = CatalogSource(" HTTPS://example.com/api.json?token=secret")
    assert (source.name, repr(source)) == ("example.com", "CatalogSource('https://example.com/api.json')")
    assert source.cache_key.startswith("catalog https://example.com/api.json ")
    assert "secret" not in source.cache_key


def test_catalogs_at_one_place_with_other_queries_are_stored_apart():
    """The query may choose a plan or an account."""
    plans = [CatalogSource(f"https://example.com/api.json{query}").cache_key for query in ("?plan=a", "?plan=b", "")]
    assert len(set(plans)) == 3


def test_a_file_is_not_stored_again(tmp_path):
    """It may be replaced at any moment, and is read as fast as a copy."""
    assert CatalogSource(tmp_path / "catalog.json").cache_key == ""


@pytest.mark.parametrize("place", ["http://user:secret@example.com/api.json", "http://[x", "http://"])
def test_a_url_that_is_none_or_holds_a_password_is_refused(place):
    """The password would stand in every log of the HTTP client."""
    with pytest.raises(ConfigError) as refused:
        CatalogSource(place)
    assert "secret" not in str(refused.value)
