"""Trials within a training: `trials` builds and judges proposals, `race` steps them beside the incumbent, `tried` keeps
the results.
"""
