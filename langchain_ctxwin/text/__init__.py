"""Texts taken apart: sentences and lines, search terms and their ranking."""
