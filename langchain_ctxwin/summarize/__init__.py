"""Summaries, written by a model or extracted without one."""
