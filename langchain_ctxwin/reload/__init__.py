"""Configuration that follows its file while the program runs."""

from langchain_ctxwin.reload.config_file import ConfigFile

__all__ = ["ConfigFile"]
