"""Finds the launch parameters in a kernel file and writes other values in their place.

Two kinds of launch sites: a kernel under `triton.autotune`, whose list of configs is replaced as a whole, and a plain
launch `kernel[grid](..., BLOCK=128, num_warps=8)`, whose integer literals are replaced where they stand (in the call,
or in the one assignment of the name that the call passes). Relies on `ast` positions; all other text stays as it is.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pgo_agent.sandbox import parsing

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
Config = dict[str, int]
Span = tuple[int, int]  # offsets into the text


@dataclass(frozen=True)
class Site:
    """One launch whose parameters can be varied."""

    kernel: str  # name of the jit function
    autotuned: bool
    span: Span  # autotuned: of the configs expression; else: just before the call's ")"
    values: dict[str, int] = field(default_factory=dict)  # plain launch: what stands there now
    spans: dict[str, Span] = field(default_factory=dict)  # plain launch: where
    pre_hook: str = ""  # autotuned: text of the configs' pre_hook, kept
    config_class: str = "triton.Config"
    parameters: frozenset[str] = frozenset()  # of the jit function
    tied: dict[str, int] = field(default_factory=dict)  # plain launch: numbers that its grid holds, too
    comma: str = ", "  # plain launch: what goes before an argument that is added
    by_hand: bool = False  # in Gluon: its layouts are of so many warps, and its pipeline is its text's


def sites(source: str) -> list[Site]:
    """The launch sites of a file, in order. Raises SyntaxError when it is not Python."""
    tree = parsing.module(source)
    offsets = _Offsets(source)
    return [*_autotuned(tree, offsets), *_plain(tree, offsets)]


def with_configs(source: str, site: Site, configs: Sequence[Config]) -> str:
    """The file with these configurations at the site. A plain launch takes exactly one."""
    if site.autotuned:
        return _replace(source, {site.span: _config_list(site, configs)})
    (config,) = configs
    edits = {site.spans[k]: str(v) for k, v in config.items() if k in site.spans}
    added = ", ".join(f"{k}={v}" for k, v in config.items() if k not in site.spans)
    return _replace(source, edits | ({site.span: site.comma + added} if added else {}))


def in_place(source: str, site: Site, configs: Sequence[Config]) -> str:
    """The file with these configurations at an autotuned site, and every other line where it was."""
    start, end = site.span
    listed = _config_list(site, configs).replace("\n", " ")
    ends = "\n" * len(source[start:end].splitlines()[1:])
    return _replace(source, {site.span: f"({listed}{ends})" if ends else listed})


def _config_list(site: Site, configs: Sequence[Config]) -> str:
    def one(c: Config) -> str:
        meta = ", ".join(f'"{k}": {v!r}' for k, v in c.items() if k not in LAUNCH_OPTIONS)
        options = [f"{k}={v}" for k, v in c.items() if k in LAUNCH_OPTIONS and v is not None]
        hook = [f"pre_hook={site.pre_hook}"] if site.pre_hook else []
        return f"{site.config_class}({', '.join(['{' + meta + '}', *options, *hook])})"

    lines = ",\n        ".join(one(c) for c in configs)
    return f"[\n        {lines},\n    ]"


def _replace(source: str, edits: dict[Span, str]) -> str:
    for (start, end), text in sorted(edits.items(), reverse=True):
        source = source[:start] + text + source[end:]
    return source


class _Offsets:
    """Offsets into the text from ast's lines and UTF-8 columns."""

    def __init__(self, source: str) -> None:
        self.text = source
        self._lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)  # as Python counts lines
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr) -> Span:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)

    def comma(self, call: ast.Call) -> str:
        """What must stand between the last argument of a call and one more."""
        start, end = self.of(call)
        kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)
        text = io.StringIO("(" + self.text[start:end] + ")")  # in brackets, line ends and indents mean nothing
        words = [t.string for t in tokenize.generate_tokens(text.readline) if t.type not in kinds]
        return " " if words[-3] == "," else "" if words[-3] == "(" else ", "

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _autotuned(tree: ast.Module, offsets: _Offsets) -> Iterator[Site]:
    for function in ast.walk(tree):
        for decorator in getattr(function, "decorator_list", []):
            if (
                isinstance(function, ast.FunctionDef)
                and isinstance(decorator, ast.Call)
                and _called(decorator) == "autotune"
            ):
                given = [k.value for k in decorator.keywords if k.arg == "configs"] or decorator.args[:1]
                if given:
                    prefix = ast.unparse(decorator.func).removesuffix("autotune")
                    name = f"{prefix}Config" if prefix or _imports(tree, "Config") else "triton.Config"
                    hook, taken = _pre_hook(tree, given[0]), _parameters(function)
                    yield Site(
                        function.name, True, offsets.of(given[0]), {}, {}, hook, name, taken, by_hand=_gluon(function)
                    )


def _plain(tree: ast.Module, offsets: _Offsets) -> Iterator[Site]:
    tuned = {s.kernel for s in _autotuned(tree, offsets)}
    jitted = {
        n.name: n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and any(_decorates(d) for d in n.decorator_list)
    }
    for function in [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript)):
            name = ast.unparse(call.func.value) if isinstance(call.func, ast.Subscript) else ""
            if name in jitted.keys() - tuned:
                yield _plain_site(jitted[name], call, function, tree, offsets)


def _plain_site(
    kernel: ast.FunctionDef, call: ast.Call, function: ast.FunctionDef, tree: ast.Module, offsets: _Offsets
) -> Site:
    values, spans, tied = {}, {}, {}
    numbers = _numbers(call, function, tree)
    for keyword in call.keywords:
        literal = _literal(keyword.value, function, tree)
        if keyword.arg and literal is not None and (keyword.arg in LAUNCH_OPTIONS or keyword.arg.isupper()):
            value = int(ast.literal_eval(literal))
            if value in numbers and keyword.arg not in LAUNCH_OPTIONS:
                tied[keyword.arg] = value
            else:
                values[keyword.arg], spans[keyword.arg] = value, offsets.of(literal)
    end = offsets.of(call)[1] - 1
    takes, comma = _parameters(kernel), offsets.comma(call)
    return Site(kernel.name, False, (end, end), values, spans, "", "", takes, tied, comma, _gluon(kernel))


def _numbers(call: ast.Call, function: ast.FunctionDef, tree: ast.Module) -> set[int]:
    """The integers that the grid of a launch is written with: a parameter of that value may stand for one of them."""
    grid: ast.AST = call.func.slice if isinstance(call.func, ast.Subscript) else call
    if isinstance(grid, ast.Name):
        given = [n for n in (*ast.walk(function), *tree.body) if isinstance(n, ast.Assign) and _assigns(n, grid.id)]
        grid = ast.Tuple([n.value for n in given], ast.Load())
    return {n.value for n in ast.walk(grid) if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 1}


def _literal(value: ast.expr, function: ast.FunctionDef, tree: ast.Module) -> ast.expr | None:
    """The integer literal that an argument is, or that the only assignment of its name is."""
    if isinstance(value, ast.Name):
        for body in (function, tree):
            found = [n for n in ast.walk(body) if isinstance(n, ast.Assign) and _assigns(n, value.id)]
            if found:
                return (
                    _literal(found[0].value, function, tree)
                    if len(found) == 1 and not isinstance(found[0].value, ast.Name)
                    else None
                )
        return None
    fine = isinstance(value, ast.Constant) and type(value.value) is int
    return value if fine else None


def _assigns(node: ast.Assign, name: str) -> bool:
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def _pre_hook(tree: ast.Module, configs: ast.expr) -> str:
    if isinstance(configs, ast.Name):
        name = configs.id
        configs = next((n.value for n in tree.body if isinstance(n, ast.Assign) and _assigns(n, name)), configs)
    hooks = (k.value for n in ast.walk(configs) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "pre_hook")
    return next((ast.unparse(h) for h in hooks), "")


def _parameters(function: ast.FunctionDef) -> frozenset[str]:
    a = function.args
    return frozenset(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs))


def _gluon(function: ast.FunctionDef) -> bool:
    return any("gluon" in ast.unparse(d).split("(")[0].split(".") for d in function.decorator_list)


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).split(".")[-1]


def _decorates(node: ast.expr) -> bool:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")[-1] == "jit"


def _imports(tree: ast.Module, name: str) -> bool:
    return any(isinstance(n, ast.ImportFrom) and any((a.asname or a.name) == name for a in n.names) for n in tree.body)
