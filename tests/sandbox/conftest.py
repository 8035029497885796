"""One real bundle for all tests of the sandbox: tests/kernels/add.py, built for an H200 by the product itself.

Also what attacks need: `forgery`, a bundle to be spoilt; `ptxas`, Triton's assembler, for cubins that Triton would not
make; `outside`, a file that a box must keep away from. And `ttgir`, what Triton makes of kernels with barriers.
"""

import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder, limits_of
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import triton_parser

Edits = dict[str, Any]  # dotted path that starts with bundle, kernel, plan or step -> new value; ...: take it away
ADD = Path(__file__).parent.parent / "kernels" / "add.py"


@pytest.fixture(scope="session")
def add_contents(tmp_path_factory: pytest.TempPathFactory) -> ContentStore:
    """The content store that `add_built` stands on. Tests read it only."""
    return ContentStore(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="session")
def add_built(add_contents: ContentStore) -> Built:
    """One case of add.py with its first configuration: one kernel, one plan."""
    add = target.read(ADD)
    built = Builder(add, devices.find("h200"), box.choose(), add_contents).build(add.source, {"SMALL": ["even"]}, 1)
    assert built.ok, built.failures
    return built


@pytest.fixture
def add_manifest(add_contents: ContentStore, add_built: Built) -> dict[str, Any]:
    """The bundle's JSON, a fresh copy for each test."""
    return add_contents.manifest(add_built.bundle)


@pytest.fixture(scope="session")
def add_image(add_contents: ContentStore, add_built: Built) -> bytes:
    """The cubin of `_add`."""
    (kernel,) = add_contents.manifest(add_built.bundle)["kernels"].values()
    return add_contents.get(kernel["files"]["cubin"], "cubin")


@pytest.fixture(scope="session")
def h200_limits() -> validate.Limits:
    return limits_of(devices.find("h200"))


@pytest.fixture(scope="session")
def ptxas(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """Assembles the body of a PTX file, for sm_90 or another; the same one once."""
    triton = pytest.importorskip("triton", reason="needs the ptxas that comes with Triton")
    tools, tmp_path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin", tmp_path_factory.mktemp("ptxas")

    @cache
    def assemble(body: str, arch: str = "sm_90") -> bytes:
        source, image = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
        blackwell = int(arch[3:].rstrip("a")) >= 100
        version = "8.7" if blackwell else "8.0"
        source.write_text(f".version {version}\n.target {arch}\n.address_size 64\n{body}")
        tool = tools / ("ptxas-blackwell" if blackwell else "ptxas")
        subprocess.run([tool, f"-arch={arch}", source, "-o", image], check=True, timeout=60)
        return image.read_bytes()

    return assemble


@dataclass
class Forgery:
    """A bundle to be spoilt: its JSON, and a folder with its artefacts."""

    manifest: dict[str, Any]
    folder: Path
    limits: validate.Limits
    image: bytes

    @property
    def kernel(self) -> dict[str, Any]:
        return next(iter(self.manifest["kernels"].values()))

    @property
    def plan(self) -> dict[str, Any]:
        return next(iter(next(iter(self.manifest["plans"].values())).values()))

    @property
    def step(self) -> dict[str, Any]:
        return self.plan["steps"][0]

    @property
    def cubin(self) -> Path:
        return self.folder / f"{self.kernel['files']['cubin']}.cubin"

    def edit(self, edits: Edits) -> None:
        for path, value in edits.items():
            place, *inner, last = path.split(".")
            at: Any = {"bundle": self.manifest, "kernel": self.kernel, "plan": self.plan, "step": self.step}[place]
            for name in inner:
                at = at[int(name) if isinstance(at, list) else name]
            key = int(last) if isinstance(at, list) else last
            if value is ...:
                del at[key]
            else:
                at[key] = value

    def swap_cubin(self, image: bytes) -> None:
        """Another image, stored honestly under its own hash."""
        digest = hashlib.sha256(image).hexdigest()
        (self.folder / f"{digest}.cubin").write_bytes(image)
        self.kernel["files"]["cubin"] = digest

    def load(self, raw: bytes | None = None) -> validate.Bundle:
        path = self.folder / "bundle.json"
        path.write_bytes(canonical(self.manifest) if raw is None else raw)
        return validate.load(path, self.folder, self.limits)


@pytest.fixture
def forgery(
    tmp_path: Path,
    add_manifest: dict[str, Any],
    add_contents: ContentStore,
    add_image: bytes,
    h200_limits: validate.Limits,
) -> Forgery:
    made = Forgery(add_manifest, tmp_path, h200_limits, add_image)
    made.cubin.write_bytes(add_image)
    return made


@pytest.fixture
def outside() -> Iterator[Path]:
    """A file that everybody on this machine may read and write, in a folder that everybody may write to."""
    with tempfile.TemporaryDirectory(prefix="pgo-outside-") as name:
        Path(name).chmod(0o777)
        path = Path(name) / "file"
        path.write_text("sk-this-must-not-be-seen")
        path.chmod(0o666)
        yield path


@pytest.fixture(scope="session")
def ttgir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The TTGIR of a kernel of `barrier_kernels`, compiled once."""
    import triton

    from tests.sandbox import barrier_kernels

    folder = tmp_path_factory.mktemp("cache")

    @cache
    def of(name: str) -> str:
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = str(folder)
            return barrier_kernels.ttgir_of(name)

    return of


@pytest.fixture(scope="session")
def ask(add_contents: ContentStore) -> Callable[[str], triton_parser.Answer]:
    """Triton's parser and verifier, asked of a text for an H200."""
    return partial(triton_parser.ask, box.choose(), add_contents, 90)
