"""What a model is shown: the kernel part of the incumbent and the facts of a run, rendered from `prompts/optimizer.j2`.

Relies on `ast` to cut a file into kernel part and contract, on the store for the facts, and on Jinja2 with undefined
names forbidden. Reference, held-out cases and tolerances stay out: hidden are the contract's statements, its helpers
and comments, and the bounds and held-out cases that a verdict's reason may name. It asks no model and reads no reply.
"""

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from pgo_agent.agent import incumbent, moves, static_rank
from pgo_agent.agent.baseline import rate
from pgo_agent.agent.context import Context
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox.build import triton_version
from pgo_agent.sandbox.target import CONTRACT, names_of

MOST_TRIED = 20  # lines on what was tried
_BOUND = re.compile(r" above [\d.e+-]+")  # as `sandbox/judge/numerics.py` words it


@dataclass(frozen=True)
class Facts:
    """Everything that the template may use: plain values."""

    device: Mapping[str, Any]  # fields of sandbox.devices.Device
    triton: str  # version
    kernel: str  # the kernel part
    cases: Sequence[Mapping[str, Any]]  # name; shipped and tuned: ms, rate, unit, choice, how
    statics: Sequence[Mapping[str, Any]]  # of the incumbent, by case: static profile and occupancy
    tried: Sequence[str]  # a line each, newest last
    allowed_ops: Sequence[str] = ()  # torch ops that the launcher may use
    most_configs: int = moves.CARRIED


def render(facts: Facts) -> str:
    """The prompt."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # No text can hold a line with its own hash: what stands between two of them cannot pretend to be outside.
    mark = f"--- kernel {hashlib.sha256(facts.kernel.encode()).hexdigest()[:12]} ---"
    values = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    return environment.from_string(_template()).render(mark=mark, **values)


def prompt_hash() -> str:
    """SHA-256 of the template: which prompt a candidate came from."""
    return hashlib.sha256(_template().encode()).hexdigest()


@cache
def _template() -> str:
    return resources.files("pgo_agent.prompts").joinpath("optimizer.j2").read_text(encoding="utf-8")


# the facts of a run ---------------------------------------------------------------------------------------------------


def gather(ctx: Context, remarks: Sequence[str] = ()) -> Facts:
    """The facts as the store holds them. `remarks`: why replies of late were of no use."""
    base = ctx.baseline()
    hidden = [c.split("/", 1)[1] for c in base["held_out"]]
    tried = [_tried(c, hidden) for c in ctx.store.candidates(ctx.run.id) if c.verdict is not None]
    return Facts(
        device=asdict(ctx.device),
        triton=triton_version(ctx.builder.box.python),
        kernel=kernel_part(incumbent.source(ctx)),
        cases=[_case(ctx, base, case) for case in base["cases"]],
        statics=[_static(ctx, case, best) for case, best in incumbent.best_known(ctx).items()],
        tried=[*tried, *(_line(r) for r in remarks)][-MOST_TRIED:],
        allowed_ops=base["allowed_ops"],
    )


def _case(ctx: Context, base: Mapping[str, Any], case: str) -> dict[str, Any]:
    kind, name = case.split("/", 1)
    sides = {
        side: {k: base[side][case][k] for k in ("ms", "choice", "how")}
        | rate(ctx, base["work"][kind][name], base[side][case]["ms"])
        for side in ("shipped", "tuned")
    }
    return {"name": name, **sides}


def _static(ctx: Context, case: str, best: moves.Best) -> dict[str, Any]:
    kept = ("registers", "shared", "spill_store_bytes", "spill_load_bytes", "notes", "pipeline_depth")
    fits = static_rank.occupancy(best.static, best.config.get("num_warps", 4), ctx.device)
    choice = " ".join(f"{k}={v}" for k, v in best.config.items())
    return {k: best.static[k] for k in kept} | asdict(fits) | {"case": case.split("/", 1)[1], "choice": choice}


def _tried(c: Candidate, hidden: Collection[str]) -> str:
    """What came of a candidate. Of a failure on a held-out case no more than the stage is told."""
    reason = c.reason or ""
    words = set(re.findall(r"[\w.-]+", reason)) if c.stage != "interpreter" else set()  # it knows no held-out case
    if re.search("held.?out", reason, re.I) or words & set(hidden):
        reason = "fails on a case that is not shown"
    return _line(f"{c.move} ({_line(c.rationale, 160)}): {c.verdict} in stage {c.stage}: {_BOUND.sub('', reason)}")


def _line(text: str, most: int = 400) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 3] + "..."


# kernel part and contract ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """The statements that share lines, with the comments above them. All blocks of a file, joined, are the file."""

    text: str
    nodes: tuple[ast.stmt, ...]
    names: frozenset[str]  # what they define
    loads: frozenset[str]  # names that they mention

    @property
    def imports(self) -> bool:
        return all(isinstance(n, ast.Import | ast.ImportFrom) for n in self.nodes)


def kernel_part(source: str) -> str:
    """What a model sees and may change: `sandbox.target.kernel_part`, less the contract's comments and helpers."""
    found = blocks(source)
    secret = hidden(found)
    return "".join(b.text for i, b in enumerate(found) if i not in secret).strip("\n") + "\n"


def blocks(text: str) -> list[Block]:
    """A file cut into blocks. Comments belong to the statement below them. Raises what `ast.parse` raises."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line + "\n" for line in text.split("\n")]
    found, begin, spans = [], 0, _spans(ast.parse(text))
    for i, (_, last, nodes) in enumerate(spans):
        after = spans[i + 1][0] - 1 if i + 1 < len(spans) else len(lines)
        tail = [j for j in range(last, after) if lines[j].strip() and lines[j][0] in " \t"]  # comments of its body
        end = max(tail, default=last - 1) + 1 if i + 1 < len(spans) else after
        names = frozenset[str]().union(*map(_names, nodes))
        found.append(Block("".join(lines[begin:end]), tuple(nodes), names, frozenset(mentioned(nodes))))
        begin = end
    return found


def _spans(tree: ast.Module) -> list[tuple[int, int, list[ast.stmt]]]:
    """First and last line of the statements; those that share a line are one."""
    spans: list[tuple[int, int, list[ast.stmt]]] = []
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = node.end_lineno or node.lineno
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], last, [*spans[-1][2], node]
        else:
            spans.append((first, last, [node]))
    return spans


def hidden(found: Sequence[Block]) -> set[int]:
    """The contract, and what nothing but the contract uses: its helpers tell of the reference and of held-out cases."""
    contract = {i for i, b in enumerate(found) if b.names & CONTRACT}
    serves = used_by(found, contract)
    shown = (i for i, b in enumerate(found) if i not in serves or b.imports or "kernel" in b.names)
    return serves - (used_by(found, shown, contract) - contract)


def used_by(found: Sequence[Block], roots: Iterable[int], walls: Collection[int] = ()) -> set[int]:
    """These blocks and those that they use, over any number of steps, but not through the walls."""
    reached, waiting = set[int](), list(roots)
    while waiting:
        i = waiting.pop()
        if i not in reached and i not in walls:
            reached.add(i)
            waiting += [j for j, b in enumerate(found) if b.names & found[i].loads]
    return reached


def _names(node: ast.stmt) -> set[str]:
    """What a statement defines. One that is no definition but touches the contract counts as a part of it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return names_of(node)
    inner = set[str]().union(*(names_of(n) for n in ast.walk(node) if isinstance(n, ast.stmt)))
    return inner if isinstance(node, ast.Assign | ast.AnnAssign) else inner | (mentioned([node]) & CONTRACT)


def mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
