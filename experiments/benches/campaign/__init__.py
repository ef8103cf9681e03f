"""Whether real campaigns keep what Placer promises: each question is a module that returns its facts.

`kills` asks what is kept through SIGKILL, `speed` what Ray gains, `report` what the page costs, and `warm_start` what a
second campaign saves, over `networks` that are alike. `run` asks all questions, `page` shows the answers.
"""
