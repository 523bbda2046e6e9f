"""A loopback server that answers as many providers do, each under a path of its own, and as broken servers do."""

import threading

from support import model_shapes as shapes
from support.loopback import Answer, Loopback

LISTS = {
    "/openai/v1/models": shapes.OPENAI,
    "/openrouter/api/v1/models": shapes.OPENROUTER,
    "/mistral/v1/models": shapes.MISTRAL,
    "/groq/openai/v1/models": shapes.GROQ,
    "/vllm/v1/models": shapes.VLLM,
    "/llamacpp/v1/models": shapes.LLAMA_CPP,
    "/lmstudio/v1/models": shapes.LM_STUDIO,
    "/lmstudio/api/v0/models": shapes.LM_STUDIO_OWN,
    "/together/v1/models": shapes.TOGETHER,
    "/cohere/v1/models": shapes.COHERE,
    "/ollama/api/tags": shapes.OLLAMA_TAGS,
    "/ollama/api/ps": shapes.OLLAMA_LOADED,
}
"""Path -> JSON."""

PAGES = {
    "/gemini/v1beta/models": (
        "pageToken",
        {"": shapes.GEMINI, "second": shapes.GEMINI_SECOND},
    ),
    "/anthropic/v1/models": (
        "after_id",
        {"": shapes.ANTHROPIC, "test-verse-20990101": shapes.ANTHROPIC_SECOND},
    ),
    "/endless/v1beta/models": (
        "pageToken",
        {"": shapes.GEMINI, "second": shapes.GEMINI},
    ),
}
"""Path -> query parameter of the next page, and the pages by its value."""


class ModelFleet(Loopback):
    """Serves every provider of the tests while the `with` block runs; `/hang` never answers.

    Example:
        >>> with ModelFleet() as fleet:
        ...     OpenAICompatibleSource(fleet.url + "/vllm/v1").fetch(None)
    """

    def __init__(self):
        super().__init__()
        self.asked = []
        self.released = threading.Event()

    def __exit__(self, *details):
        self.released.set()
        super().__exit__(*details)

    def respond(self, call):
        """Answer for the fleet."""
        self.asked.append(call)
        if call.path.startswith("/hang"):
            self.released.wait()
        if call.path in PAGES:
            parameter, pages = PAGES[call.path]
            return Answer(body=pages[call.query.get(parameter, "")])
        shown = shapes.OLLAMA_SHOW.get(call.body.get("model", ""))
        found = shown if call.path == "/ollama/api/show" else LISTS.get(call.path)
        return Answer(body=found or {}, status=404 if found is None else 200)

    def headers_of(self, path):
        """Headers of the latest request for a path, in lower case."""
        return next(call.headers for call in self.asked[::-1] if call.path == path)
