"""One search under way: `registry` makes searchers by name, `prediction` is what they predict by."""
