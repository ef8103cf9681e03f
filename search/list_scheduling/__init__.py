"""List schedulers, which take ops in a fixed order and put each on the device where it finishes first.

Read `list_scheduler` first, the common code (compiled in `kernel`). `heft`, `peft`, `cpop` and `donf` differ in the
order of the ops and in the choice of the device. `perturbed_heft` breeds variants of HEFT. `etf` follows no order: the
op that can start first comes next (compiled in `etf_kernel`).
"""
