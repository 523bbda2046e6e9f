"""What is known about models, and which of them takes a request.

    registry     what users ask; answers merges for one name what listing resolves (names), asking says which name it is
    refreshing   keeps one feed per source fresh, in parallel and time-boxed (calls); cache survives restarts
    sources/     one file per kind of source: `fetch(name or None)` states `ModelInfo`s; values reads what others wrote
    merging      one `ModelInfo` from all claims: by trust, of catalogs the smaller limit, conflicts kept
    memories     limits learned from errors; notices and explaining say what to do, and who said what
    routing/     a router over candidates, and a chat model in front of it

Nothing here knows the engine: it takes `ModelInfo`s and chat models, and `flow.choices` brings both together.
"""
