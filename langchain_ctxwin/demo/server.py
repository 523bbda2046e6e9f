"""The graph that `langgraph dev` serves (see `langgraph.json`): a ready agent that explores a folder, with its gauge.

    CTXWIN_DEMO_MODEL=google_genai:gemini-... CTXWIN_DEMO_FOLDER=~/project langgraph dev

Without these two it runs offline, over this package's own files. The size of every request and every compaction is in
the custom stream (`stream_mode="custom"`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.demo.explore import SYSTEM_PROMPT
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.offline_model import OfflineChatModel
from langchain_ctxwin.demo.tools import FolderTools
from langchain_ctxwin.observe import StreamSink

MODEL_VARIABLE, FOLDER_VARIABLE = "CTXWIN_DEMO_MODEL", "CTXWIN_DEMO_FOLDER"

OFFLINE_WINDOW_TOKENS, OFFLINE_OUTPUT_TOKENS = 4_000, 400
"""Small enough that a handful of questions fills it."""


def make_graph() -> Any:
    """Return the graph; the server brings checkpointer and store.

    Raises:
        ConfigError: the folder is missing, or holds no text.
    """
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(__file__).parent).expanduser()
    model = os.environ.get(MODEL_VARIABLE) or OfflineChatModel(
        model="offline", context_window=OFFLINE_WINDOW_TOKENS, max_tokens=OFFLINE_OUTPUT_TOKENS
    )
    tools = FolderTools(Folder.open(folder)).tools()
    return create_context_agent(model, tools, system_prompt=SYSTEM_PROMPT, sinks=[StreamSink(steps=True)])


graph = make_graph()
