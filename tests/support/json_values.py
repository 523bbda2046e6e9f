"""JSON values for properties: any shape of them, and a text by which they can be compared."""

import json

from hypothesis import strategies as st


def nested(scalars, keys, *, max_size=4, max_leaves=25):
    """Draw a scalar, or lists and objects with these keys, one inside the other."""
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=max_size)
            | st.dictionaries(keys, inner, max_size=max_size)
        ),
        max_leaves=max_leaves,
    )


def exact(value):
    """JSON text, so that 1, 1.0 and true differ and NaN equals itself."""
    return json.dumps(value, sort_keys=True)
