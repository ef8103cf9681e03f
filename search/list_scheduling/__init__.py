"""List schedulers: ops in a fixed order, each to the device where it finishes first.

`list_scheduler` is what they share (compiled in `kernel`); `heft`, `peft`, `cpop` and `donf` differ in the order and
the choice. `perturbed_heft` breeds variants of HEFT.
"""
