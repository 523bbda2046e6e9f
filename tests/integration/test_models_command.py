"""Does `ctxwin models` print a table of a whole fleet that a person trusts?"""

import pytest

from langchain_ctxwin.cli import main
from langchain_ctxwin.models.sources import http
from langchain_ctxwin.models.sources.platforms import VARIABLES
from support.model_fleet import ModelFleet

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

KEYS = (*VARIABLES, "OLLAMA_HOST")


@pytest.fixture(scope="module")
def fleet():
    with ModelFleet() as fleet:
        yield fleet


@pytest.fixture(autouse=True)
def no_traces(tmp_path, monkeypatch):
    """Keep caches in a folder of the test, and keys out."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.001)


def asking(fleet, **places):
    """The arguments that name servers of the fleet: kind_1="/path" becomes `--source kind=URL/path`."""
    return [part for kind, path in places.items() for part in ("--source", f"{kind.split('_')[0]}={fleet.url}{path}")]


def rows_of(out):
    """The rows of the table by model name, split at two blanks or more."""
    return {line.split()[0]: line for line in out.splitlines() if line[:1].isalnum()}


def test_a_fleet_is_one_table_with_limits_prices_and_who_states_them(fleet, capsys):
    """Each server's models, in tokens and dollars per million tokens, and a line per source."""
    routed, served = "/openrouter/api/v1", "/vllm/v1"
    servers = asking(fleet, openai_1=routed, openai_2=served, ollama="/ollama", anthropic="/anthropic")
    assert main(["models", *servers, "--refresh"]) == 0
    out = capsys.readouterr().out
    heading = out.splitlines()[0].split()
    assert heading[:3] == ["MODEL", "PROVIDER", "WINDOW"]
    assert "Tokens; USD per million tokens" in out
    rows = rows_of(out)
    assert rows["maker/test-8b"].split()[2] == "16,384"
    assert rows["maker/test-routed"].split()[2:8] == ["96,000", "-", "16,000", "0.25", "2", "0.025"]
    assert sum(line.endswith("ago") for line in out.splitlines()) >= 4


def test_a_server_that_is_down_is_named_and_the_others_are_shown(fleet, capsys):
    """What is wrong with a source stands in its line."""
    assert main(["models", *asking(fleet, openai_1="/http500/v1", openai_2="/vllm/v1")]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "500" in line]
    assert len(told) == 1
    assert "provider" in told[0]


def test_one_model_is_explained_field_by_field_with_every_source(fleet, capsys):
    """Whoever states another value is shown, and which value counts."""
    catalogs = ["--catalog", f"{fleet.url}/catalog/api.json", "--catalog", f"{fleet.url}/catalog/prices.json"]
    servers = asking(fleet, anthropic="/anthropic")
    assert main(["models", *servers, *catalogs, "--explain", "anthropic/test-verse"]) == 0
    out = capsys.readouterr().out
    assert "* context_window" in out
    assert "anthropic (provider)" in out
    assert "* the value that counts" in out


def test_an_unknown_model_is_an_error_with_what_to_do(fleet, capsys):
    """The exit code says that nothing was found."""
    assert main(["models", *asking(fleet, openai="/vllm/v1"), "--explain", "no-such-model"]) == 1
    assert "no-such-model" in capsys.readouterr().out


def test_a_provider_without_models_is_an_error_with_what_to_do(capsys):
    """It names the provider, and the ways to add a source."""
    assert main(["models", "--provider", "nobody"]) == 1
    assert "'nobody': set a provider's API key, or pass --source or --catalog" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["nonsense", "openai=", "fax=http://127.0.0.1"])
def test_a_source_that_cannot_be_asked_is_refused(wrong, capsys):
    """The value, and the form that is wanted."""
    assert main(["models", "--source", wrong]) == 2
    assert f"--source {wrong}: give KIND=URL" in capsys.readouterr().err


def test_a_second_run_asks_nothing_again(fleet, capsys):
    """A program that ends at once has saved what it fetched."""
    asking_it = ["models", *asking(fleet, openai="/vllm/v1"), "--explain", "maker/test-8b"]
    assert main(asking_it) == 0
    fleet.asked.clear()
    assert main(asking_it) == 0
    assert fleet.asked == []


def test_an_explanation_names_the_sources_that_failed(fleet, capsys):
    """They might have stated something else."""
    main(["models", *asking(fleet, openai_1="/http500/v1", openai_2="/vllm/v1"), "--explain", "maker/test-8b"])
    assert "could not be asked" in capsys.readouterr().out


def test_an_empty_name_is_an_error(capsys):
    """Not a request for all models."""
    assert main(["models", "--explain", ""]) == 2
    assert "names no model" in capsys.readouterr().err


def test_an_address_in_the_environment_that_is_none_stops_no_other_source(fleet, capsys, monkeypatch):
    """Its line says what is wrong."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "gateway")
    assert main(["models", *asking(fleet, openai="/vllm/v1")]) == 0
    assert "base_url='gateway'" in capsys.readouterr().out
