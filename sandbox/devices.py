"""The GPUs that a kernel can be compiled for on a machine that has none of them.

Figures are the vendor's (datasheets and the CUDA programming guide's table of technical specifications). They feed the
stand-in driver, occupancy and the physical floor; what a GPU really reaches is measured by the judge, never read here.
"""

from dataclasses import dataclass

from pgo_agent.sandbox.errors import UsageFault

LANES = 32  # threads of a warp
REGISTER_UNIT = 256  # registers of a warp come in such units
WARP_UNIT = 4  # an SM's four partitions: warps share its registers evenly among them
SMEM_UNIT, SMEM_RESERVED = 128, 1024  # bytes: shared memory of a block comes in such units, the system's own first


@dataclass(frozen=True)
class Device:
    key: str  # what `--device` takes
    name: str  # what the driver calls it
    arch: int  # compute capability x 10
    sms: int  # streaming multiprocessors
    smem_block: int  # bytes of shared memory a block may opt in to
    smem_sm: int  # bytes of shared memory of one SM
    threads_sm: int  # resident threads of one SM
    l2: int  # bytes
    memory: int  # bytes of device memory
    sm_khz: int  # boost clock
    mem_khz: int  # memory clock
    bus_bits: int  # memory bus width
    fp16_tflops: float  # dense fp16/bf16 tensor rate, fp32 accumulate
    gbps: float  # device memory bandwidth, GB/s
    blocks_sm: int = 32  # resident blocks of one SM
    regs_sm: int = 65536  # 32-bit registers of one SM

    def tensor_tflops(self, narrow: bool) -> float:
        """Return the dense rate of tensor instructions in TFLOP/s; `narrow`: with one-byte operands, of which they
        multiply twice as many (datasheets of A100, H100 and B200; fp8 from 8.9 on, int8 from 8.0 on)."""
        return self.fp16_tflops * (2 if narrow else 1)

    def rate(self, flops: float, moved: float, ms: float) -> tuple[float, str]:
        """Return what a launch of `ms` reaches: TFLOP/s, or GB/s where moving the bytes takes longer than the
        arithmetic."""
        if moved / (self.gbps * 1e9) > flops / (self.fp16_tflops * 1e12):
            return moved / ms / 1e6, "GB/s"
        return flops / ms / 1e9, "TFLOP/s"

    def resident_blocks(self, registers: int, shared_bytes: int, warps: int) -> dict[str, int]:
        """Return the blocks that each resource of an SM allows, as NVIDIA's occupancy calculator (of Nsight Compute)
        counts for 8.0 to 12.0; their least is how many an SM holds.

        `registers` of a thread, `shared_bytes` and `warps` of a block. Registers of a warp: 32 x registers of a thread,
        rounded up to 256. Of these an SM's 64 Ki give so many warps, in fours. Shared memory of a block: its own and
        1 KiB of the system's, rounded up to 128 bytes. Most warps and blocks: the programming guide's table of
        technical specifications. Clusters are taken to fit, whatever their size.
        """
        a_warp = _rounded(max(registers, 1) * LANES, REGISTER_UNIT)
        return {
            "registers": self.regs_sm // a_warp // WARP_UNIT * WARP_UNIT // warps,
            "shared memory": self.smem_sm // _rounded(shared_bytes + SMEM_RESERVED, SMEM_UNIT),
            "warps": self.threads_sm // LANES // warps,
            "blocks": self.blocks_sm,
        }


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


DEVICES = {
    d.key: d
    for d in (
        Device(
            "h200", "NVIDIA H200", 90, 132, 232448, 233472, 2048, 62914560, 150_000_000_000,
            1980000, 3201000, 6144, 989.4, 4800.0,
        ),
        Device(
            "h100", "NVIDIA H100 80GB HBM3", 90, 132, 232448, 233472, 2048, 52428800, 85_000_000_000,
            1980000, 2619000, 5120, 989.4, 3350.0,
        ),
        Device(
            "a100", "NVIDIA A100-SXM4-80GB", 80, 108, 166912, 167936, 2048, 41943040, 85_000_000_000,
            1410000, 1593000, 5120, 312.0, 2039.0,
        ),
        Device(
            "b200", "NVIDIA B200", 100, 148, 232448, 233472, 2048, 132644864, 190_000_000_000,
            1965000, 3996000, 8192, 2250.0, 8000.0,
        ),
        Device(
            "rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 101376, 102400, 1536, 75497472, 25_000_000_000,
            2520000, 10501000, 384, 165.2, 1008.0, 24,
        ),
        Device(
            "rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 101376, 102400, 1536, 100663296, 33_000_000_000,
            2407000, 14001000, 512, 209.5, 1792.0, 24,
        ),
    )
}  # fmt: skip


def find(key: str) -> Device:
    """Return the device called `key` (any case). Raises UsageFault with the known names."""
    device = DEVICES.get(key.lower())
    if device is None:
        raise UsageFault(f"unknown device '{key}'", f"choose one of: {', '.join(DEVICES)}")
    return device


def named(name: str) -> Device | None:
    """Return the table's entry for a GPU as its driver names it, or None."""
    return next((d for d in DEVICES.values() if d.name == name), None)
