"""The contract of a target file: which names it must define, read from its text without running it.

Relies on `parsing` alone, so that the agent can look at a target without importing it. `load` does import it: only the
tracer (in its box) and the judge (for a file that the person at the machine allowed) may call that.
"""

import ast
import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from pgo_agent.sandbox import held_out, parsing
from pgo_agent.sandbox.errors import TargetFault, UsageFault

REQUIRED = {
    "kernel": "def kernel(...): the host launcher; allocates its outputs and launches the Triton kernels",
    "reference": "def reference(...): the same result in plain PyTorch",
    "inputs": "def inputs(case, generator): a dict of arguments, tensors made with the generator on generator.device",
    "CASES": "CASES = {'name': dict(...)}: the public cases, which are timed",
    "SMALL": "SMALL = {'name': dict(...)}: small cases for Triton's interpreter",
    "HELD_OUT": "HELD_OUT = {'name': dict(...)}: cases that no proposer sees",
    "flops": "def flops(case): floating point operations that the job needs",
    "bytes_moved": "def bytes_moved(case): fewest bytes through device memory",
}
IN_PLACE = "IN_PLACE"  # the inputs that kernel() changes
ORIGINAL = "ORIGINAL"  # the kernel as it stood, as text, where reference() launches that
AS_IT_STOOD = "compared with the kernel as it stood, no independent reference"
OPTIONAL = ("TOLERANCE", "NONDETERMINISTIC", "WEIGHTS", "LAUNCH_SPACE", "LIBRARIES", IN_PLACE, ORIGINAL)
COMPILED = "torch.compile"  # of the reference, as a side of the timing
PROBLEM = frozenset({"Model", "get_inputs"})  # what a problem of KernelBench's form defines
# No library's name.
SIDES = ("shipped", "as shipped", "autotuned", "tuned", "winner", "incumbent", "candidate", "A/A", COMPILED)
CONTRACT = (set(REQUIRED) - {"kernel"}) | set(OPTIONAL)  # what a proposer may not change


@dataclass(frozen=True)
class Target:
    """A target as text: the kernel file, and where the contract stands (the same file, or a sidecar)."""

    path: Path  # the kernel file
    source: str  # its text
    contract_path: Path  # the file that holds the contract names: `path`, or NAME.target.py beside it
    contract: str  # that file's text

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def sidecar(self) -> bool:
        return self.contract_path != self.path

    @property
    def in_place(self) -> tuple[str, ...]:
        """The inputs that kernel() changes."""
        return _in_place(parse(self.contract, str(self.contract_path)), self.contract_path)

    @property
    def of_original(self) -> bool:
        """Whether its reference is the kernel as it stood, and so no independent one."""
        return any(ORIGINAL in names_of(n) for n in parse(self.contract, str(self.contract_path)).body)

    def with_more(self, lines: str) -> "Target":
        """Return the target with lines behind its contract."""
        contract = f"{self.contract}\n{lines}"
        return Target(self.path, self.source if self.sidecar else contract, self.contract_path, contract)

    @property
    def digest(self) -> str:
        """SHA-256 over kernel file and contract: what a judge elsewhere allows."""
        return hashlib.sha256(self.source.encode() + b"\0" + self.contract.encode()).hexdigest()

    @property
    def asked(self) -> str:
        """SHA-256 over the contract's statements: what is asked of a kernel, whatever its own text."""
        return hashlib.sha256("\0".join(_asked(self.contract)).encode()).hexdigest()


def read(path: Path) -> Target:
    """Return the target at `path`. Raises UsageFault (no such file, not Python) or TargetFault (names missing)."""
    source = text(path)
    sidecar = path.with_name(f"{path.stem}.target.py")
    contract_path = sidecar if sidecar.is_file() else path
    contract = text(sidecar) if contract_path == sidecar else source
    return of_texts(path, source, contract_path, contract)


def of_texts(path: Path, source: str, contract_path: Path, contract: str) -> Target:
    """Return the target that such texts would be in files of such paths. Raises as `read` does."""
    target = Target(path, source, contract_path, contract)
    _check_names(target)
    return target


def text(path: Path) -> str:
    """Return the text of a file. Raises UsageFault when there is none, or it cannot be read as text."""
    if path.is_dir():
        raise UsageFault(f"{path} is a folder", "name the Python file that holds the kernel")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageFault(f"no such file: {path}", "name a kernel file, for example kernels/fa_fwd.py") from None
    except UnicodeDecodeError:
        raise UsageFault(f"{path} is not Python: it is not UTF-8 text", "name a kernel file") from None
    except OSError as e:
        raise UsageFault(f"cannot read {path}: {e.strerror}", "check its permissions") from None


def parse(source: str, name: str) -> ast.Module:
    """Return the syntax tree of `source`. Raises UsageFault with file and line."""
    try:
        return parsing.module(source, name)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        line = getattr(e, "lineno", None)
        where = f"{name}:{line}" if line else name
        raise UsageFault(f"{where} is not Python: {getattr(e, 'msg', e)}", "fix the syntax error") from None


def names_of(node: ast.stmt) -> set[str]:
    """Return the module-level names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    return set()


def of_contract(node: ast.stmt) -> bool:
    """Return whether a module-level statement defines a contract name, or does something with one."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name in CONTRACT
    return bool(_used(node) & CONTRACT)


def _check_names(target: Target) -> None:
    defined = set[str]().union(*(names_of(n) for n in parse(target.source, str(target.path)).body))
    contract = set[str]().union(*(names_of(n) for n in parse(target.contract, str(target.contract_path)).body))
    missing = [n for n in REQUIRED if n not in (defined if n == "kernel" else contract)]
    if missing:
        listed = "\n     ".join(REQUIRED[n] for n in missing)
        where = target.path if missing == ["kernel"] else target.contract_path
        if defined >= PROBLEM:
            raise TargetFault(
                f"{where} is a problem of KernelBench's form", f"make a target of it: pgo-agent init {where}"
            )
        raise TargetFault(f"{where} does not define: {', '.join(missing)}", f"add to the file:\n     {listed}")
    _ = target.in_place  # readable
    _check_replaced(target)
    try:
        held_out.statements(target.contract)
    except held_out.Entangled as e:
        problem = f"{target.contract_path}:{e.line} fills HELD_OUT and defines {e.name}, which other statements use"
        raise TargetFault(problem, "write HELD_OUT as an assignment of its own") from None


def _check_replaced(target: Target) -> None:
    """Raise TargetFault where an import replaces a function of the kernel part: no candidate of it would be run."""
    lines = dict[str, int]()
    for node in parse(target.source, str(target.path)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            lines[node.name] = node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom) and (again := sorted(names_of(node) & lines.keys())):
            name, where = again[0], f"{target.path}:{node.lineno}"
            problem = f"{where}: {name} is imported, and replaces the one of line {lines[name]}: that is never run"
            raise TargetFault(problem, f"import it under another name, or leave out one {name}")


def _in_place(contract: ast.Module, path: Path) -> tuple[str, ...]:
    """Return the names of IN_PLACE, read without running anything. Raises TargetFault for another form."""
    about = [n for n in contract.body if IN_PLACE in names_of(n) | _used(n)]
    if not about:
        return ()
    names = _literal(about[0]) if len(about) == 1 else None
    if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
        hint = 'name the inputs that kernel() changes: IN_PLACE = ("p", "exp_avg")'
        raise TargetFault(f"{path}:{about[-1].lineno}: IN_PLACE must be one tuple or list of names, written out", hint)
    return tuple(names)


def _literal(node: ast.stmt) -> object:
    """Return the value that a statement gives to one name; None where only a run tells it."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return None
    try:
        return ast.literal_eval(node.value)
    except ValueError:
        return None


def _used(node: ast.stmt) -> set[str]:
    """Return the names in a module-level statement; of functions and classes none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def same_contract(source: str, other: str) -> bool:
    """Return whether two versions of a file define the contract names by the same statements."""
    return _asked(source) == _asked(other)


@lru_cache(16)
def _asked(text: str) -> tuple[str, ...]:
    return tuple(ast.dump(n) for n in parsing.module(text).body if of_contract(n))


def load(path: Path, name: str) -> ModuleType:
    """Execute the file as module `name`. Raises whatever the file raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetFault(f"cannot import {path}", "give it a .py name")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
