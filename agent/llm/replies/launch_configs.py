"""Launch changes: configurations as JSON or as lines, put in place of those of the launches that they name.

Relies on `agent/moves/launch_sites.py` to find launches and to write them. Reading is lenient (comments, trailing
commas, `kwargs`), but unknown parameters and impossible values are refused.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgo_agent.agent.llm.replies.errors import BadReply, Nothing, short
from pgo_agent.agent.moves import CARRIED
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.launched import LAUNCH_OPTIONS
from pgo_agent.agent.moves.launch_sites import Config, LaunchSite, sites, with_configs
from pgo_agent.sandbox import parsing

LARGEST, WIDEST = 20_000, 500  # characters of a launch change, of a line of one
_RANGES = {"num_warps": (1, 32), "num_stages": (0, 16), "num_ctas": (1, 16), "maxnreg": (24, 255)}
_RANGE = (0, 65_536)  # of every other parameter
_POWERS = ("num_warps", "num_ctas")
_LISTS = ("configs", "configurations", "launch", "launches")
_NESTED = ("kwargs", "meta", "constexprs")
_LINE = re.compile(r"(?:[-*+][ \t]+|\d+[.)][ \t]+)?(?:(\w+)[ \t]*:[ \t]*)?(\w+[ \t]*=[ \t]*[^\s,;=]+(?:[\s,;]+|$))+")
_PAIR = re.compile(r"(\w+)[ \t]*=[ \t]*([^\s,;=]+)")
_REMARK = re.compile(r"(?://|#)[^\n]*")
_COMMA = re.compile(r",(\s*[\]}])")
_FORM = '[{"BLOCK": 128, "num_warps": 8}]'

Named = list[tuple[str, Any]]  # name of a kernel, empty if none is given, and one configuration


def is_launch(text: str) -> bool:
    """Whether every line of an unlabelled text is a launch configuration."""
    filled = [line.strip() for line in text.split("\n") if line.strip()]
    return bool(filled) and len(text) <= LARGEST and all(map(_matched, filled))


def within(text: str) -> str:
    """Return the lines of a text that are configurations."""
    return "\n".join(filter(_matched, text.split("\n")))


def read(text: str) -> Named:
    """Return the configurations of a launch change. Raises BadReply."""
    if len(text) > LARGEST:
        raise BadReply(f"a launch change of {len(text)} characters is too long")
    if text.lstrip()[:1] in ("[", "{"):
        return list(_named("", _value(text)))
    pairs = [pair for line in text.split("\n") if line.strip() for pair in _of_line(line)]
    if not pairs:
        raise Nothing(f"no configuration found: write them like {_FORM}")
    return pairs


def sources(source: str, named: Named) -> list[str]:
    """Return the file with the configurations: one text, or for a plain launch one text each. Raises BadReply."""
    by_kernel: dict[str, list[Config]] = {}
    for name, config in named:
        site = _site(source, name)
        options = by_kernel.setdefault(site.kernel, [])
        checked = _checked(config, site, _parameters(source, site))
        options += [checked] if checked not in options else []
    texts = [source]
    for kernel, options in by_kernel.items():
        if len(options) > CARRIED:
            raise BadReply(f"{len(options)} configurations for {kernel}: give {CARRIED} at most")
        texts = [changed for text in texts for changed in _changed(text, kernel, options)]
    changed = [t for t in dict.fromkeys(texts) if t != source]
    if not changed:
        raise Nothing("the reply changes nothing")
    return changed


def _changed(source: str, kernel: str, options: Sequence[Config]) -> Iterator[str]:
    """Yield the file with the configurations at every launch of a kernel; a plain launch takes one at a time."""
    autotuned = _site(source, kernel).autotuned
    for chosen in [options] if autotuned else [[c] for c in options]:
        text = source
        for i, site in enumerate(sites(source)):
            if site.kernel == kernel:
                try:
                    text = with_configs(text, sites(text)[i], chosen)
                except DoesNotApply as e:
                    raise BadReply(short(str(e), 200)) from None
        yield text


# reading --------------------------------------------------------------------------------------------------------------


def _value(text: str) -> Any:
    """The value of JSON as models write it, or of a Python literal."""
    bare = _COMMA.sub(r"\1", _REMARK.sub("", text))
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        pass
    try:
        return parsing.literal(bare.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadReply(f"the launch change is no JSON: write it like {_FORM}") from None


def _named(kernel: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple) and depth < 4:
        for item in value:
            yield from _named(kernel, item, depth + 1)
        return
    if not isinstance(value, dict) or not value or depth >= 4:
        raise BadReply(f"{short(repr(value)[:60])} is no configuration: write them like {_FORM}")
    flat = _flat(value)
    kernel_name = flat.pop("kernel", kernel)
    inner = next((flat[k] for k in _LISTS if isinstance(flat.get(k), list | dict)), None)
    if inner is not None:
        yield from _named(str(kernel_name), inner, depth + 1)
    elif any(isinstance(v, list | dict) for v in flat.values()):
        for name, options in flat.items():
            yield from _named(str(name), options, depth + 1)
    else:
        yield str(kernel_name), flat


def _flat(value: Mapping[Any, Any]) -> dict[Any, Any]:
    inner = [v for k, v in value.items() if k in _NESTED and isinstance(v, dict)]
    rest = {k: v for k, v in value.items() if not (k in _NESTED and isinstance(v, dict))}
    for more in inner:
        rest = {**more, **rest}
    return rest


def _of_line(line: str) -> Named:
    match = _matched(line)
    if match is None:
        raise BadReply(f"'{short(line, 60)}' is no configuration: write it like BLOCK=128 num_warps=8")
    return [(match[1] or "", {k: _number(v) for k, v in _PAIR.findall(line)})]


def _matched(line: str) -> re.Match[str] | None:
    """A line that is a configuration."""
    return _LINE.fullmatch(line.strip()) if len(line) <= WIDEST else None


def _number(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text


# checking -------------------------------------------------------------------------------------------------------------


def _site(source: str, kernel: str) -> LaunchSite:
    launches = sites(source)
    names = list(dict.fromkeys(s.kernel for s in launches))
    fitting = [s for s in launches if s.kernel == kernel or (not kernel and len(names) == 1)]
    if not names:
        raise BadReply("the launcher launches no kernel that is defined in this file: nothing to configure")
    if not fitting:
        which = f"there is no kernel {short(kernel, 40)}" if kernel else "several kernels are launched"
        raise BadReply(f'{which}: say for which, like {{"{names[0]}": {_FORM}}}; there are {", ".join(names)}')
    return fitting[0]


def _parameters(source: str, site: LaunchSite) -> list[str]:
    """The parameters that a configuration can set: those that no call passes, or literals of a plain call."""
    names = [n for n in site.values if n not in LAUNCH_OPTIONS] if not site.autotuned else _free(source, site)
    return [*names, *LAUNCH_OPTIONS]


def _free(source: str, site: LaunchSite) -> list[str]:
    tree = parsing.module(source)
    function = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == site.kernel)
    ordered = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    passed = set[str]()
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    for call in calls:
        if isinstance(call.func, ast.Subscript) and ast.unparse(call.func.value) == site.kernel:
            starred = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))
            passed |= {*ordered[:starred], *(k.arg for k in call.keywords if k.arg)}
    return [name for name in ordered if name not in passed]


def _checked(config: Mapping[Any, Any], site: LaunchSite, names: Sequence[str]) -> Config:
    """A configuration with plain integers. Raises BadReply that names the valid parameters."""
    checked: Config = {}
    for name, value in config.items():
        if name in site.tied:
            raise BadReply(f"{name} cannot be set: the grid of the launch is written with {site.tied[name]}, too")
        if name not in names:
            raise BadReply(f"{short(str(name), 40)} is no launch parameter of {site.kernel}: it has {', '.join(names)}")
        if value is None and name in LAUNCH_OPTIONS:
            continue
        if type(value) not in (int, bool):
            raise BadReply(f"{name} of {site.kernel} must be an integer, not {short(repr(value)[:60], 40)}")
        low, high = _RANGES.get(name, _RANGE)
        if not low <= value <= high:
            raise BadReply(f"{name}={short(str(value)[:40])} of {site.kernel} is out of range: {low} to {high}")
        if name in _POWERS and value & (value - 1):
            raise BadReply(f"{name}={value} of {site.kernel} must be a power of two")
        checked[name] = value
    return checked
