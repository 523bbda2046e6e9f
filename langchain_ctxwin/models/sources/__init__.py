"""Where facts about models come from: one small file per source."""

from langchain_ctxwin.models.sources.learned import LearnedSource

__all__ = ["LearnedSource"]
