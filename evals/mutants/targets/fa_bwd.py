"""What stands in place of kernels/fa_bwd.py's own: one configuration, and cases that take little time."""

import triton

CONFIGS = [triton.Config({"BLOCK": 64, "STEP": 32}, num_warps=4, num_stages=3)]
CASES = {"d64-1k-causal": dict(B=2, H=16, S=1024, D=64, causal=True, bshd=False, dtype="float16")}
SMALL = {
    "even-causal": dict(B=1, H=1, S=128, D=64, causal=True, bshd=False, dtype="float16"),
    "ragged-bshd": dict(B=2, H=2, S=75, D=64, causal=False, bshd=True, dtype="float16"),
    "ragged-causal": dict(B=1, H=1, S=130, D=64, causal=True, bshd=False, dtype="float16"),
}
HELD_OUT = {
    "ragged": dict(B=1, H=3, S=333, D=64, causal=False, bshd=False, dtype="float16"),
    "ragged-causal-bshd": dict(B=2, H=2, S=222, D=64, causal=True, bshd=True, dtype="float16"),
}
LAUNCH_SPACE = {"BLOCK": [64], "STEP": [32], "num_warps": [4], "num_stages": [3]}
