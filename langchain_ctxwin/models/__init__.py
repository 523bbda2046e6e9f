"""What is known about models: limits, prices, capabilities, and who states them.

    registry     what users ask; merges for one name what sources list, a chat model's profile says, and errors stated;
                 the lines that `ctxwin models` prints
    cache        keeps what sources stated: they are asked in parallel, time-boxed, in the background, over restarts
    names        what all sources list, and which listed model a name means
    merging      one `ModelInfo` from all claims: by trust, of catalogs the smaller limit, conflicts kept
    probing      finds a real input limit by requests of rising size
    sources/     `fetch(name or None)`: apis, catalog, explicit, learned; shared are reading, http and platforms

Nothing here knows the engine: it takes `ModelInfo`s and chat models.
"""
