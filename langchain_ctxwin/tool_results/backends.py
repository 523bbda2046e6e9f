"""Large tool results as files of a deepagents backend, where the agent's own `read_file` and `grep` read them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from langchain_ctxwin.core.provider_blocks import compact_json
from langchain_ctxwin.tool_results.contents import json_value
from langchain_ctxwin.tool_results.cursors import ResultRecord

__all__ = ["BackendResultStore"]

NAMESPACE_CHARS = 12  # of a namespace in a path, which a model has to copy


class BackendResultStore:
    """Keeps each large result as a file of a deepagents backend: of the state, a store, a file system or a sandbox.

    The first line of a file says what the result is, the rest is the result, JSON by lines. Files stay until somebody
    deletes them, whatever time to live is set; those of a `StateBackend` go with their thread. Who shares a backend
    can read its files: give each tenant one of its own, as for the other files of an agent.

    Setup:
        ```bash
        pip install langchain-ctxwin deepagents
        ```

    Key init args:
        backend: that of the agent, as `create_deep_agent(backend=)` takes it.
        root: folder of the files.

    Instantiate:
        ```python
        guard = ToolResultGuard(store=BackendResultStore(backend))
        ```
    """

    def __init__(self, backend: Any, *, root: str = "/tool_results") -> None:
        self._backend = backend
        self._root = root.rstrip("/")

    def path_of(self, key: str) -> str:
        """Return the path of the file with this result."""
        namespace, _, name = key.rpartition("/")
        return f"{self._folder(namespace)}/{name}.txt"

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:  # noqa: ARG002  # files do not expire
        """Write the result, unless it is there: no result changes.

        Raises:
            OSError: the backend cannot write.
        """
        if self.get(key) is not None:
            return
        facts = asdict(ResultRecord.from_bytes(value))
        text = facts.pop("text")
        rows = json_value(text)
        if rows is not None:
            text = json.dumps(rows, ensure_ascii=False, indent=1)
        raw = f"{compact_json(facts)}\n{text}".encode("utf-8", "surrogatepass")
        (written,) = self._backend.upload_files([(self.path_of(key), raw)])
        if written.error:
            raise OSError(f"{written.path}: {written.error}")

    def get(self, key: str) -> bytes | None:
        """Return the result, or None: never kept, deleted, or no longer what was written."""
        (read,) = self._backend.download_files([self.path_of(key)])
        if read.content is None:
            return None
        facts, _, text = read.content.decode("utf-8", "surrogatepass").partition("\n")
        try:
            return ResultRecord(**json.loads(facts), text=text).to_bytes()
        except (TypeError, ValueError):
            return None

    def delete(self, key: str) -> None:
        """Delete the file of a result; no effect when there is none."""
        self._backend.delete(self.path_of(key))

    def clear(self, namespace: str) -> int:
        """Delete the files of a namespace, and return how many there were."""
        files = self._backend.ls(self._folder(namespace)).entries or []
        for file in files:
            self._backend.delete(file["path"])
        return len(files)

    def _folder(self, namespace: str) -> str:
        return f"{self._root}/{namespace[:NAMESPACE_CHARS]}"
