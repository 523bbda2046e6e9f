"""How long may a setting make something last?"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_SECONDS = 30 * 24 * 3_600
"""A month: much longer than anything here is good for, and threads and stores of every system can still wait for it."""

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
