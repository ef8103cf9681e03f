"""List schedulers: ops in a fixed order, each to the device where it finishes first.

Read `list_scheduler` first, what they share (compiled in `kernel`). `heft`, `peft`, `cpop` and `donf` differ in the
order of the ops and in the choice of the device. `perturbed_heft` breeds variants of HEFT.
"""
