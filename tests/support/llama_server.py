"""The real llama.cpp server, in this process, over a tiny random model."""

import json

import httpx
import xllamacpp
from langchain_openai import ChatOpenAI

BABBLE_TOKENS = 8  # random weights have nothing to say
QUIET = -1  # below the lowest log level
# no connection outlives its request or its event loop
NO_KEEPALIVE = httpx.Limits(max_keepalive_connections=0)


class LlamaServer:
    """Serves a GGUF file through the OpenAI API on a free port of the loopback interface.

    Counts, limits and errors are llama.cpp's own; answers are babble, so they are kept short.

    Example:
        >>> with LlamaServer(gguf_path, n_ctx=2048) as server:
        ...     server.chat_model().invoke("hi").usage_metadata["output_tokens"]
        8
    """

    def __init__(self, gguf_path, *, n_ctx=2048):
        self.gguf_path = gguf_path
        self.n_ctx = n_ctx
        self.sent = []
        """Bodies of the chat requests that came from the sync client of `chat_model`."""

    def __enter__(self):
        self._server = xllamacpp.Server(self._params())
        self.url = self._server.listening_address + "/v1"
        self._http = httpx.Client(
            limits=NO_KEEPALIVE, event_hooks={"request": [self._record]}
        )
        return self

    def __exit__(self, *_):
        self._http.close()
        del self._server  # stops its threads and closes the port

    def chat_model(self, **options):
        """Return the real client, pointed at this server, without retries and with short deterministic answers."""
        settings = {
            "model": "tiny",
            "api_key": "x",
            "base_url": self.url,
            "max_retries": 0,
            "max_tokens": BABBLE_TOKENS,
            "temperature": 0,
            "http_client": self._http,
            "http_async_client": httpx.AsyncClient(limits=NO_KEEPALIVE),
        }
        return ChatOpenAI(**settings | options)

    def _record(self, request):
        if request.url.path.endswith("/chat/completions"):
            self.sent.append(json.loads(request.read()))

    def _params(self):
        params = xllamacpp.CommonParams()
        params.model.path = str(self.gguf_path)
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.n_ctx, params.n_parallel, params.n_gpu_layers = self.n_ctx, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.use_jinja = params.force_pure_content_parser = (
            True  # babble is no valid tool call
        )
        params.fit_params = params.warmup = params.ui = False
        params.verbosity = QUIET
        return params
