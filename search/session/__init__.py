"""One search under way: `session` keeps a searcher that `registry` made alive; `prediction` is what it predicts by."""
