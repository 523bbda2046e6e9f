"""Tools for tests of the choice between them, and counters that are easy to add up."""


def definition(name, description="", **fields):
    """Return a definition in OpenAI's form; fields are descriptions of parameters by name."""
    properties = {
        field: {"type": "string", "description": text} for field, text in fields.items()
    }
    parameters = {"type": "object", "properties": properties}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": parameters,
        },
    }


def one_each(messages, *, tools=None):
    """Count one token per message and per tool."""
    return len(messages) + len(tools or ())


def by_words(messages, *, tools=None):
    """Count the words of descriptions, and three tokens once when there is any tool."""
    words = sum(len(tool["function"]["description"].split()) for tool in tools or ())
    return len(messages) + words + (3 if tools else 0)


def names_of(tools):
    """Return the names of definitions."""
    return tuple(tool["function"]["name"] for tool in tools)
