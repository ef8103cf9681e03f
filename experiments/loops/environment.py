"""The environment in which a placed step rounds as the untouched step does."""

EXACT = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
"""Without oneDNN, whose fused kernels round differently, and on CPUs only; `judge` also sets one thread."""
