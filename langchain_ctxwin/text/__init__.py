"""Texts: sentences, search terms, ranking by words."""
