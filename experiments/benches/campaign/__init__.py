"""What campaigns are promised to do, asked of real ones: each question is a module that returns its facts.

`kills` is what is kept through SIGKILL, `speed` what Ray gains, `report` what the page costs, `warm_start` what a
second campaign saves, over `networks` that are alike; `run` asks all of them, `page` shows what was seen.
"""
