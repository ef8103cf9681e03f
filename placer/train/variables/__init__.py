"""The user's variables, kept up to date while steps run on replicas of them on other devices.

Read in this order: `hooks` reports each use of a variable before it happens, and `self_test` checks that this works;
`other_threads` notes threads that train without Placer; `replicas` says which replicas of a variable are up to date
(`places` says where one is), and fetches the current value, and with it those of the variables that the user reads
after each step (`habits`); `step_log` keeps what a recovery after a loss needs.
"""
