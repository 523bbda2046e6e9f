"""Are LangChain's profiles read, of given models and of the integrations that are installed?"""

import sys

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_google_genai import ChatGoogleGenerativeAI

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.models.sources import ProfileSource

PROFILE = {
    "max_input_tokens": 128_000,
    "max_output_tokens": 16_000,
    "text_inputs": True,
    "tool_calling": True,
    "image_inputs": True,
    "structured_output": False,
    "status": "deprecated",
}

EXPECTED = {
    "context_window": 128_000,
    "max_output_tokens": 16_000,
    "capabilities": frozenset({"text", "tools", "images"}),
    "deprecated": True,
}


def info(name, **facts):
    return ModelInfo(name=name, provenance=dict.fromkeys(facts, "profile"), **facts)


def gemini(profile):
    return ChatGoogleGenerativeAI(model="models/test-pro", google_api_key="x", profile=profile)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install an integration with the given table, and no other."""

    def installation(table, package="langchain_maker"):
        folder = tmp_path / package / "data"
        folder.mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise AssertionError('imported')")
        (folder / "_profiles.py").write_text(table)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        return ProfileSource()

    return installation


def test_the_profile_of_a_given_model_is_read():
    """Under the name and the provider that the model states."""
    source = ProfileSource([gemini(PROFILE).bind_tools([])], installed=False)
    assert source.fetch(None) == [info("test-pro", provider="google", **EXPECTED)]
    assert source.fetch("unknown") == []


@pytest.mark.parametrize("profile", [{}, None])
def test_a_model_without_a_profile_states_nothing(profile):
    model = FakeListChatModel(responses=["x"], profile=profile)
    assert ProfileSource([model], installed=False).fetch(None) == []


def test_the_table_of_an_integration_is_read_without_importing_it(installed):
    source = installed(
        f"from typing import Any\n\n_PROFILES: dict[str, Any] = {{'test-pro': {PROFILE!r}, 'empty': {{}}}}"
    )
    assert source.fetch(None) == [info("test-pro", provider="maker", **EXPECTED)]


def test_a_given_model_comes_before_the_tables(installed):
    """The same model of the same provider is stated once."""
    installed(f"_PROFILES = {{'test-pro': {PROFILE!r}}}", "langchain_google_genai_copy")
    installed(f"_PROFILES = {{'test-pro': {PROFILE!r}, 'other': {PROFILE!r}}}", "langchain_gemini")
    source = ProfileSource([gemini({"max_input_tokens": 1})])
    found = {(one.provider, one.name): one.context_window for one in source.fetch(None)}
    assert found == {
        ("google", "test-pro"): 1,
        ("google", "other"): 128_000,
        ("google-genai-copy", "test-pro"): 128_000,
    }


@pytest.mark.parametrize(
    "table",
    [
        "",
        "def broken(:",
        "_PROFILES = load()",
        "_PROFILES = [1]",
        "_PROFILES = {'a': 1, 7: {}, 'b': {'tool_calling': 1}}",
    ],
)
def test_a_table_that_moved_or_changed_is_no_error(installed, table):
    """At most the names it still has are left."""
    assert [one.limits.known for one in installed(table).fetch(None)] in ([], [False])


def test_the_tables_of_real_integrations_are_read():
    """Those that this environment has."""
    providers = {one.provider for one in ProfileSource().fetch(None)}
    assert providers >= {"google", "openai", "anthropic"}
