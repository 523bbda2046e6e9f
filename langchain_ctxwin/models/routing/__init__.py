"""Which of several models takes a request?

    router       what users hold: candidates, roster (who may answer), expecting (what of each), objective (who is best)
    fitting      hard constraints first, by the sizes of sizing; pricing and quality are weighed afterwards
    quality      the chance of a good answer: text_weights (made by training, shipped in weights), counted outcomes
    chat_model   asks whom the router chose (instances, calling, answers); attempts goes on when one fails (failures)
    experience   what happened so far: rests, learned limits, times; conversations: who answers whom

A route is data: the model, why, and why not each of the others.
"""
