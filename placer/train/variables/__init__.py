"""The user's variables, kept true while steps run on replicas of them on other devices.

Read in this order: `hooks` reports each use of a variable first, and `self_test` checks that it can; `other_threads`
notes who trains unwrapped; `replicas` says which copy of a variable is true, and fetches the true value; `step_log`
remembers the way back after a loss.
"""
