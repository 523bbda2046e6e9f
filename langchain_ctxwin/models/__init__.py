"""What is known about models: limits, prices, capabilities, and who states them.

    registry     what users ask: keeps what sources state, refreshes it in the background, answers for one name
    names        which listed model a name means, and one `ModelInfo` from all that is said about it
    sources      what states facts: the caller, profiles, catalogs, errors of providers; the snapshot that comes along
    apis         providers' own lists of models, a class each
    reading      tokens, prices, days and names of providers, as tables and servers write them
    probing      finds a real input limit by requests of rising size

Nothing here knows the engine: it takes `ModelInfo`s and chat models.
"""
