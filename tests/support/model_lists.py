"""Lists of models as many providers document them, in `model_lists.json`; all names are made up."""

import json
from pathlib import Path

import httpx

from langchain_ctxwin.models.sources import AnthropicSource, GeminiSource

URL = "http://fleet.test"
# everything in an environment that brings a key
VARIABLES = (*GeminiSource.variables, *AnthropicSource.variables)
ANSWERS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Path, and behind it the cursor of a page or the model that is asked about -> JSON."""


def answer(request):
    """Answer a request below `URL`, in the place of httpx's transport."""
    asked = {**request.url.params, **json.loads(request.content or "{}")}
    more = [asked[name] for name in ("pageToken", "after_id", "model") if name in asked]
    found = ANSWERS.get(" ".join([request.url.path, *more]))
    return httpx.Response(404 if found is None else 200, json=found)
