"""What every recorded result names: the machine that judged. Plain data; `environment.py` finds it out."""

from dataclasses import dataclass, field

from pgo_agent.sandbox.json_codec import OPTIONAL, Record


@dataclass(frozen=True)
class Environment(Record):
    """The machine that judges, which every recorded result names. Fields of an older or another judge may be absent."""

    gpu: str | None = field(default="", metadata=OPTIONAL)  # name; None: there is none; empty: nothing was judged yet
    cuda_uuid: str = field(default="", metadata=OPTIONAL)  # as CUDA reports it; `uuid` is what the process was given
    arch: int = field(default=0, metadata=OPTIONAL)
    sms: int = field(default=0, metadata=OPTIONAL)
    memory: int = field(default=0, metadata=OPTIONAL)  # bytes
    driver: str | None = field(default=None, metadata=OPTIONAL)
    cuda_driver: str = field(default="", metadata=OPTIONAL)
    torch: str = field(default="", metadata=OPTIONAL)
    triton: str | None = field(default="", metadata=OPTIONAL)  # None: not installed there
    python: str = field(default="", metadata=OPTIONAL)
    tflops: float | None = field(default=None, metadata=OPTIONAL)  # measured peaks
    gbps: float | None = field(default=None, metadata=OPTIONAL)
    uuid: str = field(default="", metadata=OPTIONAL)
    index: str = field(default="", metadata=OPTIONAL)
    host: str = field(default="", metadata=OPTIONAL)  # empty: the machine of the run

    @property
    def peaks(self) -> dict[str, float | None]:
        """Unit -> what the GPU was seen to reach; None: not measured."""
        return {"TFLOP/s": self.tflops, "GB/s": self.gbps}

    def __bool__(self) -> bool:
        """Whether anything was judged."""
        return self != Environment()


NOWHERE = Environment()  # before anything was judged
