"""What stands in place of kernels/fa_fwd.py's own: one configuration, and cases that take little time."""

import triton

CONFIGS = [triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=3)]
CASES = {"d64-2k": dict(B=4, H=32, HK=32, S=2048, D=64, causal=False, dtype="float16")}
SMALL = {
    "even": dict(B=1, H=2, HK=2, S=256, D=64, causal=False, dtype="float16"),
    "ragged": dict(B=1, H=1, HK=1, S=192, D=64, causal=False, dtype="float16"),
    "ragged-causal": dict(B=2, H=2, HK=1, S=150, D=64, causal=True, dtype="float16"),
}
HELD_OUT = {
    "ragged": dict(B=1, H=4, HK=4, S=777, D=64, causal=False, dtype="float16"),
    "ragged-causal": dict(B=1, H=4, HK=2, S=333, D=64, causal=True, dtype="float16"),
}
LAUNCH_SPACE = {"BLOCK_M": [64], "BLOCK_N": [64], "num_warps": [4], "num_stages": [3]}
