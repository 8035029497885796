"""What stands in place of kernels/gemm.py's own: one configuration, and cases that take little time."""

import triton

CONFIGS = [triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=4, num_stages=3)]
CASES = {"2k": dict(M=2048, N=2048, K=2048, transposed=False, dtype="float16")}
SMALL = {
    "even": dict(M=128, N=192, K=512, transposed=False, dtype="float16"),
    "ragged-bt": dict(M=65, N=130, K=161, transposed=True, dtype="float16"),
    "wide": dict(M=128, N=257, K=64, transposed=True, dtype="float16"),
    "tall": dict(M=1089, N=128, K=40, transposed=False, dtype="float16"),  # more rows of tiles than a group has
}
HELD_OUT = {"ragged-bt": dict(M=1111, N=999, K=1537, transposed=True, dtype="float16")}
LAUNCH_SPACE = {"BLOCK_M": [64], "BLOCK_N": [64], "BLOCK_K": [64], "GROUP_M": [8], "num_warps": [4], "num_stages": [3]}
