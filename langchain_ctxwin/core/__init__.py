"""The pure part: values in, values out; no I/O, clocks or randomness. Here are the words by which others know it."""

from langchain_ctxwin.core.calls import is_empty
from langchain_ctxwin.core.model_info import Rules, model_name
from langchain_ctxwin.core.pairing import repair_step
from langchain_ctxwin.core.parts import RECORD_ID, record_text
from langchain_ctxwin.core.provider_blocks import text_of
from langchain_ctxwin.core.record import Record, RecordLine, extended
from langchain_ctxwin.core.session import Pending, Session
from langchain_ctxwin.core.sizing import Doubt, Sizes
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.core.turns import is_pinned, last_user
from langchain_ctxwin.core.updates import after_measure, from_answer
from langchain_ctxwin.core.view import Clamp, Position, View, message_id, position_of

__all__ = [
    "FRAMING",
    "RECORD_ID",
    "Clamp",
    "Doubt",
    "Pending",
    "Position",
    "Record",
    "RecordLine",
    "Rules",
    "Session",
    "Sizes",
    "View",
    "after_measure",
    "extended",
    "from_answer",
    "is_empty",
    "is_pinned",
    "last_user",
    "message_id",
    "model_name",
    "position_of",
    "record_text",
    "repair_step",
    "text_of",
]
