"""The pure part: values in, values out; no I/O, clocks or randomness."""
