"""Plumbing that every part shares: background work, fork safety, memos, shared files, stores."""
