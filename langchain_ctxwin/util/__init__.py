"""The mechanisms that everybody shares: threads, memos, files, the log, work for sync and async callers."""
