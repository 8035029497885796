"""Reads the graph fragment in the comment before a kernel: the operations of the model that the kernel stands for.

Each line is a node as `torch.fx` prints it: `%add : Tensor "f16[8][1]cuda:0"[num_users=1] = call_function[target=...](
args = (%x, 1), kwargs = {})`. Relies on nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

TYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "b8": "bool", "c64": "complex64",
}  # fmt: skip
SEVERAL = {
    "var_mean": 2, "std_mean": 2, "prepare_softmax_online": 2, "max": 2, "min": 2, "sort": 2, "topk": 2, "aminmax": 2,
    "native_layer_norm": 3, "native_group_norm": 3, "native_batch_norm": 3, "cummax": 2, "cummin": 2, "frexp": 2,
}  # fmt: skip
_LAYOUT = r'(?:Tensor "(?P<type>\w+)\[(?P<size>[^\]]*)\]\[(?P<stride>[^\]]*)\](?P<device>\w+:?\d*)")?'
_PLACEHOLDER = re.compile(r"%(?P<name>\w+) : " + _LAYOUT + r"[^=]*= PlaceHolder\[")
_NODE = re.compile(
    r"%(?P<name>\w+) : (?:\[#users=\d+\])?" + _LAYOUT + r".*?(?:\[num_users=(?P<users>\d+)\])? = call_function"
    r"\[target=(?P<target>[\w.]+)\]\(args = (?P<args>.*), kwargs = (?P<kwargs>\{.*\})\)$"
)


@dataclass(frozen=True)
class Layout:
    """Type, sizes and strides of a tensor; sizes may be expressions on symbols."""

    dtype: str
    size: tuple[str, ...]
    stride: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One operation."""

    name: str
    target: str  # torch.ops.aten.add.Tensor
    args: tuple[str, ...]  # as printed
    kwargs: tuple[tuple[str, str], ...]
    layout: Layout | None  # of its result; None where it has several
    users: int

    @property
    def op(self) -> str:
        """`add`, of torch.ops.aten.add.Tensor."""
        parts = self.target.split(".")
        return parts[3] if self.target.startswith("torch.ops.") and len(parts) > 3 else parts[-1]

    @property
    def changes(self) -> bool:
        """Whether it changes its first argument, as `index_put_` does."""
        return self.target.startswith("torch.ops.aten.") and self.op.endswith("_") and not self.op.endswith("__")

    @property
    def results(self) -> int:
        """How many results it has; of those that have as many as one asks for, how many are used."""
        if self.op in ("split", "split_with_sizes", "unbind", "chunk"):
            return max(2, self.users)
        return 1 if self.op in ("max", "min") and not self.target.endswith(".dim") else SEVERAL.get(self.op, 1)

    @property
    def reads(self) -> list[str]:
        """Names of the nodes that it is given, in order."""
        texts = [*self.args, *(v for _, v in self.kwargs)]
        return list(dict.fromkeys(n for t in texts for n in re.findall(r"%(\w+)", t)))


@dataclass(frozen=True)
class Fragment:
    """What stands before one kernel."""

    placeholders: Mapping[str, Layout | None]  # what it reads; what one part of it gives to another, too
    nodes: Mapping[str, Node]
    returns: tuple[str, ...]  # what it writes, in order; names of buffers where that is no node's value


def read(comment: Sequence[str]) -> Fragment:
    """Return the fragment in a kernel's comment; an empty one where there is none."""
    placeholders, nodes, returns = dict[str, Layout | None](), dict[str, Node](), tuple[str, ...]()
    for line in (line.strip() for line in comment):
        if found := _PLACEHOLDER.match(line):
            placeholders[found["name"]] = _layout(found)
        elif found := _NODE.match(line):
            listed = tuple(split(found["args"][1:-1]))
            kwargs = tuple(_pair(p) for p in split(found["kwargs"][1:-1]))
            users = int(found["users"] or 1)
            nodes[found["name"]] = Node(found["name"], found["target"], listed, kwargs, _layout(found), users)
        elif line.startswith("return %"):
            returns = tuple(re.findall(r"%(\w+)", line))
    return Fragment(placeholders, nodes, returns)


def split(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas that stand in no brackets."""
    depth, part = 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += c
    if part.strip():
        yield part.strip()


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


def _layout(found: re.Match[str]) -> Layout | None:
    if found["type"] is None or found["type"] not in TYPES:
        return None
    size, stride = (tuple(split(found[k])) for k in ("size", "stride"))
    return Layout(TYPES[found["type"]], size, stride)
