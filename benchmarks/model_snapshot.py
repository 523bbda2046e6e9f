"""Makes the snapshot of limits and prices that comes with the package, from public catalogs.

    python benchmarks/model_snapshot.py CATALOG [CATALOG ...]

A catalog is a file or a URL in the shape of models.dev (https://models.dev/api.json) or of LiteLLM's table of prices
(model_prices_and_context_window.json of BerriAI/litellm, also inside its wheel); both have the MIT licence. LiteLLM's
table states the largest input alone: where `genai-prices` is installed (MIT, too) and its window is just that input
and the output together, both are written down. What Google serves is limited separately in any case.
"""

from __future__ import annotations

import argparse
import gzip
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from langchain_ctxwin import ModelRegistry
from langchain_ctxwin.models import names, sources

TARGET = Path(sources.__file__).with_name(sources.SNAPSHOT_FILE)

# Providers that a LangChain integration speaks to; gateways and resellers are left to the catalogs themselves.
PROVIDERS = {
    "openai", "anthropic", "google", "google-vertex", "google-vertex-anthropic", "azure", "azure-ai", "amazon-bedrock",
    "mistral", "groq", "deepseek", "xai", "cohere", "togetherai", "fireworks-ai", "openrouter", "perplexity", "alibaba",
    "moonshotai", "zai", "cerebras", "nvidia", "databricks", "meta",
}  # fmt: skip
SEPARATE = {"google", "google-vertex"}  # tables write the input limit as the window
LEFT_OUT = {"provenance", "conflicts", "aliases"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("catalogs", nargs="+", help="files or URLs")
    registry = ModelRegistry(catalogs=parser.parse_args().catalogs, sources=())
    listed = [info for info in registry.models() if info.provider in PROVIDERS]
    windows = stated_windows()
    separate = {info.name for info in listed if info.provider == "google"}
    listed = [with_input_limit(info, windows, separate) for info in listed]
    kept = [
        info for info in listed if info.limits.known and info.output_price is not None
    ]
    text = sources.MODELS.dump_json(
        kept, exclude_defaults=True, exclude={"__all__": LEFT_OUT}
    )
    TARGET.write_bytes(gzip.compress(text, mtime=0))
    for name, fault in registry.sources.items():
        if fault:
            print(f"{name}: {fault}")
    apart = sum(info.max_input_tokens is not None for info in kept)
    print(
        f"{TARGET}: {len(kept)} models, {apart} with an input limit of their own, {TARGET.stat().st_size:,} bytes"
    )


def stated_windows():
    """The windows that `genai-prices` states, by name without a date."""
    with suppress(ImportError):
        from genai_prices.data import providers

        return {
            model.id: model.context_window
            for one in providers
            for model in one.models
            if model.context_window
        }
    return {}


def with_input_limit(info, windows, separate):
    """The model with a limit of its input where the window that is listed is one.

    Google's is, as its API says, on Vertex, too; others are where the stated window has room for the output beside it.
    """
    window, output = info.context_window, info.max_output_tokens
    if info.max_input_tokens or not window or not output:
        return info
    is_separate = info.provider in SEPARATE and info.name in separate
    stated = windows.get([*names.spellings(names.key_of(info.name))][-1])
    if not is_separate and stated != window + output:
        return info
    return replace(info, context_window=window + output, max_input_tokens=window)


if __name__ == "__main__":
    main()
