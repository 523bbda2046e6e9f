"""Does `ctxwin models` print a table of a whole fleet that a person trusts?"""

import pytest

from langchain_ctxwin.cli import main
from support.model_fleet import ModelFleet
from support.model_sources import VARIABLES

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]


@pytest.fixture(scope="module")
def fleet():
    with ModelFleet() as fleet:
        yield fleet


@pytest.fixture(autouse=True)
def no_traces(tmp_path, monkeypatch):
    """Keep caches in a folder of the test, and keys out."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def asking(fleet, **places):
    """The arguments that name servers of the fleet: kind_1="/path" becomes `--source kind=URL/path`."""
    return [
        part
        for kind, path in places.items()
        for part in ("--source", f"{kind.split('_')[0]}={fleet.url}{path}")
    ]


def rows_of(out):
    """The rows of the table by model name, split at two blanks or more."""
    return {line.split()[0]: line for line in out.splitlines() if line[:1].isalnum()}


def test_without_servers_the_models_that_come_along_are_listed(capsys):
    assert main(["models", "--provider", "anthropic"]) == 0
    assert len(rows_of(capsys.readouterr().out)) > 10


def test_a_fleet_is_one_table_with_limits_prices_and_who_states_them(fleet, capsys):
    """Each server's models, in tokens and dollars per million tokens, and a line per source."""
    routed, served = "/openrouter/api/v1", "/vllm/v1"
    servers = asking(
        fleet,
        openai_1=routed,
        openai_2=served,
        ollama="/ollama",
        anthropic="/anthropic",
    )
    assert main(["models", *servers]) == 0
    out = capsys.readouterr().out
    heading = out.splitlines()[0].split()
    assert heading[:3] == ["MODEL", "PROVIDER", "WINDOW"]
    assert "Tokens; USD per million tokens" in out
    rows = rows_of(out)
    assert rows["maker/test-8b"].split()[2] == "16,384"
    assert rows["maker/test-routed"].split()[2:8] == [
        "96,000",
        "-",
        "16,000",
        "0.2500",
        "2.0000",
        "0.0250",
    ]
    assert {"ollama", "anthropic"} <= set(out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (
            ["--provider", "nobody"],
            1,
            "'nobody': correct its name, or pass --source or --catalog",
        ),
        (["--source", "openai"], 2, "--source openai: give KIND=URL"),
        (
            ["--source", "fax=http://127.0.0.1"],
            2,
            "--source fax=http://127.0.0.1: give KIND=URL",
        ),
    ],
)
def test_what_cannot_be_answered_is_an_error_with_what_to_do(
    arguments, code, told, capsys
):
    assert main(["models", *arguments]) == code
    assert told in "".join(capsys.readouterr())
