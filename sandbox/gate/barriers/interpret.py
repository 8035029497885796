"""TTGIR -> abstract barrier programs: executes the numbers that barriers depend on, and skips everything else.

Follows integers, loops, branches, barrier arrays and warp-specialized regions, not tensors. Where a barrier depends on
a free number, it raises Choose, and `runs.py` starts again with a value. Where the number depends on data, it raises
Undecided with the operation and its line.

Assumes that an unknown operation without a barrier operand leaves barriers alone, and that two loads from one address
give the same number. Barriers of clusters and of Blackwell's tensor cores are not modelled.
"""

import re
from collections.abc import Callable, Sequence

from pgo_agent.sandbox.gate.barriers import accesses, control, operations
from pgo_agent.sandbox.gate.barriers.finding import Finding
from pgo_agent.sandbox.gate.barriers.program import At, Program
from pgo_agent.sandbox.gate.barriers.terms import INTEGER, Known, Number, Term, integer_result, leaves, on_numbers
from pgo_agent.sandbox.gate.barriers.values import Choose, Frame, Memory, Role, TooLong, Undecided, Value, place
from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Argument, Block, Module, Op, Region

MOST_OPS = 100_000  # executed in one run; a large kernel's longest run takes some ten thousands
_HANDLERS = control.HANDLERS | operations.HANDLERS
_ENDS = frozenset(
    {"scf.yield", "scf.condition", "ttg.warp_yield", "ttg.warp_return", "tt.return", "cf.br", "cf.cond_br"}
)
_POINTERS = frozenset({"tt.addptr", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int"})


class Unroller:
    """One run of a kernel with some numbers known."""

    def __init__(self, module: Module, known: Known) -> None:
        self.module, self.known = module, known
        self.functions = {w: f for f in module.functions for w in f.words if w.startswith("@")}
        self.clusters = False  # several CTAs share barriers
        self.roles: dict[str, Role] = {}
        self.barriers: set[str] = set()  # allocations that hold barriers
        self.allocated: set[str] = set()
        self.untracked: set[str] = set()  # allocations that may be written without a step that says so
        self.rounds = 1  # how often the loops around the present operation run, all together
        self.loops: dict[str, list[int]] = {}  # where a loop with barriers stands -> its numbers of iterations
        self.findings: list[Finding] = []  # those that need no schedule
        self.put_off: Choose | Undecided | None = None  # a question that chosen iteration counts may settle
        self.executed = 0  # operations
        self._names: dict[str, int] = {}
        self._allocated: dict[int, str] = {}  # by the identity of an allocation
        self._places: dict[int, At] = {}  # of operations, by their identity
        self._concerns: dict[tuple[int, bool], bool] = {}
        self._queues: dict[int, bool] = {}
        self._touches: dict[int, bool] = {}
        self._computes: dict[int, Callable[..., int | None] | None] = {}

    def program(self) -> Program:
        """Return the barrier program of the run. Raises Choose, Undecided, Impossible."""
        kernel = self.module.kernel
        self.clusters = _of_module(self.module, "ttg.num-ctas", 1) > 1
        frame: Frame = {a.name: self._argument(a, str(kernel.parts[0])) for a in kernel.defined}
        role = self.role("kernel", _of_module(self.module, "ttg.num-warps", 4))
        try:
            self._function(kernel, frame, role)
        except Undecided as e:
            raise self.put_off or e from None
        if self.put_off:
            raise self.put_off
        steps = {name: tuple(role.steps) for name, role in self.roles.items()}
        return Program(steps, tracked=frozenset(self.allocated - self.untracked))

    def _argument(self, argument: Argument, head: str) -> Value:
        leaf = argument_leaf(argument, head)
        return self.known.get(leaf, leaf)

    def _function(self, kernel: Op, frame: Frame, role: Role) -> None:
        """Execute the kernel block by block: one that returns early has several."""
        labels = {m[0]: b for b in kernel.regions[0].blocks if (m := re.search(r"\^\w+", b.head))}
        block: Block | None = next(iter(kernel.regions[0].blocks))
        for _ in range(len(labels) + 1):
            if block is None or not block.ops:
                return
            values, last = self.block(block, frame, role), block.ops[-1]
            if last.name not in ("cf.br", "cf.cond_br"):
                return
            targets = [labels[t] for t in re.findall(r"\^\w+", str(last))]
            if last.name == "cf.cond_br" and len(targets) == 2:
                decided = isinstance(values[0], int)
                holds = self.number(values[0], last, "the condition", "flag", alike=True)  # before roles part
                longest = max(targets, key=lambda b: len(b.ops))  # while the question is put off
                targets = [targets[not holds] if decided else longest]
            if any(b.arguments for b in targets):
                raise Undecided(f"a jump that hands on values at {self.at(last)}")
            (block,) = targets
        raise Undecided(f"a loop of jumps between blocks at {self.at(kernel)}")

    # executing --------------------------------------------------------------------------------------------------------

    def block(self, block: Block, frame: Frame, role: Role) -> list[Value]:
        """Execute a block; return the operands of its last operation."""
        for op in block.ops:
            self.executed += 1
            if self.executed > MOST_OPS:
                raise TooLong(f"one run takes more than {MOST_OPS} operations, at {self.at(op)}")
            if op.name in _ENDS:
                return [frame.get(v) for v in op.operands]
            try:
                self._operation(op, frame, role)
            except (ValueError, IndexError, TypeError) as e:  # too few operands, another number of results, ...
                raise Undecided(f"{op.name} at {self.at(op)} is not written as Triton prints it") from e
        return []

    def _operation(self, op: Op, frame: Frame, role: Role) -> None:
        values = [frame.get(v) for v in op.operands]
        computes = self._on_numbers(op)
        if computes and all(type(v) is int for v in values):  # most operations of a run, and ten times as fast
            frame[op.results[0]] = computes(*values)
            return
        results: Sequence[Value]
        if any(isinstance(v, Memory) for v in values):
            self.untracked.update(accesses.untracked(op, values, role))
        if handler := _HANDLERS.get(op.name):
            results = handler(self, op, values, frame, role)
        elif op.name.startswith("arith."):
            results = [self._arithmetic(op, values)]
        else:
            results = self._unknown(op, values)
            accesses.note(self, op, values, role)
        frame.update(zip(op.results, results, strict=True) if results else dict.fromkeys(op.results))

    def _unknown(self, op: Op, values: Sequence[Value]) -> Sequence[Value]:
        """Execute an operation without a handler. Raises Undecided where it may concern barriers."""
        touched = next((v for v in values if isinstance(v, Memory) and v.name in self.barriers), None)
        if touched is not None:
            raise Undecided(f"{op.name} at {self.at(op)} does to the barrier {touched.name} what is not modelled")
        if operations.suspect(op):
            raise Undecided(f"{op.name} at {self.at(op)} may make roles wait for each other and is not modelled")
        if any(self.concerns(o, False) for region in op.regions for o in region.ops):
            raise Undecided(f"barriers inside of {op.name} at {self.at(op)}, which is not modelled")
        numbers = [v for v in values if isinstance(v, int | Term)]
        if op.name in _POINTERS and len(numbers) == len(values):
            size = 1 + sum(n.size for n in numbers if isinstance(n, Term))
            return [Term(op.name.removeprefix("tt."), tuple(numbers), 64, size=size)]
        return ()

    def _on_numbers(self, op: Op) -> Callable[..., int | None] | None:
        if id(op) not in self._computes:
            is_arith = op.name.startswith("arith.") and len(op.results) == 1
            self._computes[id(op)] = on_numbers(op) if is_arith else None
        return self._computes[id(op)]

    def _arithmetic(self, op: Op, values: Sequence[Value]) -> Value:
        kind = op.name.removeprefix("arith.")
        if kind == "constant":
            return _constant(op)
        if kind == "select" and isinstance(values[0], int):
            return values[1] if values[0] else values[2]
        numbers = [v for v in values if isinstance(v, int | Term)]
        return integer_result(op, tuple(numbers)) if len(numbers) == len(values) else None

    # what handlers ask ------------------------------------------------------------------------------------------------

    def leaf(self, op: str, name: str, width: int, step: int = 1) -> Number:
        """Return an unknown number, or its value where it was chosen."""
        leaf = Term(op, (), width, name, step)
        return self.known.get(leaf, leaf)

    def number(self, value: Value, op: Op, what: str, kind: str = "value", alike: bool = False) -> int:
        """Return a number that a barrier depends on. Raises Choose for an unknown number of iterations. `alike`: all
        roles have the same one, also where it was loaded.

        With any other unknown number the run goes on with some value, and raises later.
        """
        if isinstance(value, int):
            return value
        subject = f"{what} of {op.name} at {self.at(op)}"
        question: Choose | Undecided = Undecided(f"{subject} is not known: it depends on data")
        if isinstance(value, Term):
            loaded = min((x.name for x in leaves(value) if x.op == "load"), default="")
            question = Choose(value, kind, subject, str(self.at(op)), self.rounds)
            if kind == "trips":
                raise question
            if loaded and not alike:
                question = Undecided(f"{subject} is not known: it depends on {loaded}")
        self.put_off = self.put_off or question
        return int(kind == "flag")

    def entered(self, op: Op, iterations: int) -> None:
        """Note how often a loop with barriers runs."""
        self.loops.setdefault(str(self.at(op)), []).append(iterations)

    def concerns(self, op: Op, groups: bool) -> bool:
        """Whether an operation inside of it uses barriers, or with `groups` also groups of cp.async."""
        key = (id(op), groups)
        if key not in self._concerns:
            self._concerns[key] = any(self._acts(o, groups) for o in op.walk())
        return self._concerns[key]

    def queues(self, op: Op) -> bool:
        """Whether an operation inside of it may start or await cp.async, wgmma or TMA stores."""
        if id(op) not in self._queues:
            self._queues[id(op)] = any(map(accesses.queued, op.walk()))
        return self._queues[id(op)]

    def touches_memory(self, op: Op) -> bool:
        """Whether an operation inside of it takes or gives shared memory."""
        if id(op) not in self._touches:
            inside = (o for region in op.regions for top in region.ops for o in top.walk())
            self._touches[id(op)] = any("memdesc" in t for o in inside for t in (*o.operand_types, *o.result_types))
        return self._touches[id(op)]

    def _acts(self, op: Op, groups: bool) -> bool:
        if op.name != "tt.call":
            return operations.acts(op, groups)
        callee = next((self.functions[w] for w in op.words if w in self.functions), None)
        return callee is None or self.concerns(callee, groups)

    def only_block(self, region: Region, op: Op) -> Block:
        if len(region.blocks) > 1 and self.concerns(op, True):
            raise Undecided(f"jumps between blocks inside of {op.name} at {self.at(op)}")
        return region.blocks[0] if region.blocks else Block("", (), ())

    def at(self, op: Op) -> At:
        if id(op) not in self._places:
            self._places[id(op)] = At(op.line, place(self.module.locations.frames(op.location)))
        return self._places[id(op)]

    def role(self, name: str, warps: int) -> Role:
        role = Role(self.fresh(name), 32 * warps)
        self.roles[role.name] = role
        return role

    def memory_name(self, op: Op) -> str:
        """Return the name of an allocation's memory, the same for every execution."""
        if id(op) not in self._allocated:
            self._allocated[id(op)] = self.fresh(op.results[0])
        return self._allocated[id(op)]

    def fresh(self, name: str) -> str:
        """Return the name, with a number from its second use on."""
        self._names[name] = self._names.get(name, 0) + 1
        return name if self._names[name] == 1 else f"{name}'{self._names[name]}"


def argument_leaf(argument: Argument, head: str) -> Term:
    """Return an argument of a kernel as an unknown number; `head`: the text that opens the kernel."""
    name, type_ = argument.name, argument.type
    divisible = re.search(re.escape(name) + r": [^,{]*\{[^}]*tt\.divisibility = (\d+)", head)
    width = types.bits(type_) if INTEGER.fullmatch(type_) else 64
    return Term("arg", (), width, name.removeprefix("%"), int(divisible[1]) if divisible and width > 1 else 1)


def _constant(op: Op) -> int | None:
    word = op.words[0] if op.words else ""
    if word in ("true", "false"):
        return int(word == "true")
    type_ = op.result_types[0] if op.result_types else ""
    return int(word) if re.fullmatch(r"-?\d+", word) and INTEGER.fullmatch(type_) else None


def _of_module(module: Module, name: str, otherwise: int) -> int:
    number = module.op.integer(name)
    if number is None and name in module.op.attributes:
        raise Undecided(f"{name} of the module is not a number")
    return otherwise if number is None else number
