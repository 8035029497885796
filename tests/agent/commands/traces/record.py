"""`python -m tests.agent.commands.traces.record FOLDER`: tritonparse's trace of a small model, without a GPU.

tritonparse's own hooks run on this project's stand-in GPU: the compilations are real up to TTGIR, the launches are
those of the model's code, and no value of a tensor is known. `recorded.ndjson.gz` was made so, then `anonymous`.
"""

import gzip
import json
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

ROOT = "/model"  # in place of the folder of this machine
KEPT = (".ttir", ".ttgir")  # of the compiler's texts


def record(folder: Path, program: Callable[[], None], device: str = "h100") -> None:
    """Run a program on the stand-in GPU, and have tritonparse write its trace. There is no way back for a process."""
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    from pgo_agent.sandbox import devices
    from pgo_agent.sandbox.tracer import autotune, fake_cuda_api, fake_gpu
    from pgo_agent.sandbox.tracer.capture_ttgir import Capture
    from tritonparse import structured_logging

    structured_logging.init(str(folder), enable_trace_launch=True)
    capture = Capture(full=False)
    parts = fake_cuda_api.Refusals(), fake_gpu.Addresses()
    fake_gpu.install(devices.find(device), *parts, lambda *_: None, capture.resources)
    capture.install()
    autotune.Sites([]).install()
    launch = fake_cuda_api.Launcher.__call__

    def launched(launcher, gx, gy, gz, stream, function, packed, metadata, entered, *rest):
        entered(metadata)  # as Triton's own launcher does
        return launch(launcher, gx, gy, gz, stream, function, packed, metadata, entered, *rest)

    fake_cuda_api.Launcher.__call__ = launched
    with fake_gpu.FakeMode(allow_non_fake_inputs=True):
        program()


def anonymous(folder: Path, to: Path) -> None:
    """Write the trace of a folder without the paths of this machine, stacks, and what the compiler wrote behind
    TTGIR."""
    here, packages = str(Path(__file__).parent), sysconfig.get_paths()["purelib"]
    (trace,) = folder.glob("*.ndjson")
    lines = list[str]()
    for line in trace.read_text().splitlines():
        event = json.loads(line)
        event["stack"] = []
        event.pop("timestamp", None)
        if payload := event.get("payload"):
            payload["file_path"] = {}
            payload["file_content"] = {n: t for n, t in payload["file_content"].items() if n.endswith(KEPT)}
            payload["metadata"]["env"] = {}
        for meta in (payload["metadata"] if payload else {}, event.get("compilation_metadata", {})):
            meta.pop("extern_libs", None)
        lines.append(json.dumps(event).replace(here, ROOT).replace(packages, "/site-packages"))
    to.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def model() -> None:
    import torch

    from tests.agent.commands.traces import inductor_kernel, model_kernels

    for number, batch in enumerate((4096, 4096, 4096, 1000, 1000, 128), 1):
        model_kernels.step(batch, 512, number)
        x, w = (torch.randn(*shape, 512, device="cuda", dtype=torch.float16) for shape in ((batch,), ()))
        given = x, w, torch.empty_like(x), batch, 512
        inductor_kernel.triton_per_fused_0.fn[(batch,)](*given, XBLOCK=1, num_warps=4, num_stages=1)


if __name__ == "__main__":
    record(Path(sys.argv[1]), model)
