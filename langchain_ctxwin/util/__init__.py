"""The mechanisms that everybody shares: threads, memos, the log, work for sync and async callers."""
