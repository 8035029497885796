"""Chooses arguments of a kernel so that a term takes a wanted value, such as a number of loop iterations.

Goes from the term to its leaves by inverse operations, gives other leaves a default, and then computes the term to
verify the result. So a choice is a possible launch, as far as the kernel's text shows. A value that is not found may
still be possible.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from pgo_agent.sandbox.gate.barriers.terms import Known, Number, Term, evaluate, leaves

Choice = dict[Term, int]


def trips(term: Term, wanted: Sequence[int], known: Known) -> list[Choice]:
    """Return choices that make a loop run each `wanted` number of times, or nearly that often.

    Up to three for the last number, by different arguments: of a product of sizes, one or the other.
    """
    choices: list[Choice] = []
    for n in wanted:
        last = n == wanted[-1]
        order = [*range(n, n + 4), *(range(n - 1, 0, -1) if last else ())]
        near = (list(islice(solutions(term, m, known), 3 if last else 1)) for m in order[:4])
        above = next(filter(None, near), []) or _above(term, n, known)
        below = (list(islice(solutions(term, m, known), 3)) for m in order[4:] if not above)
        choices += [c for c in above or next(filter(None, below), []) if c not in choices]
    plain, value = _default(term, known)
    return choices or ([plain] if value is not None else [])


def _above(term: Term, least: int, known: Known) -> list[Choice]:
    """Return the choice with the least value above `least`, of the guesses and of small values for one leaf: a
    multiple of 16 gives 16 where 7 is wanted. Empty where no value is above."""
    chosen = (*_guesses(term, least, known), *_plain_ones(term, known))
    values = ((evaluate(term, c), c) for c in chosen if _within_grid(c))
    reached = [(v, c) for v, c in values if isinstance(v, int) and v > least]
    return [min(reached, key=lambda r: r[0])[1]] if reached else []


def _plain_ones(term: Term, known: Known) -> Iterator[Choice]:
    """Give choices with one unknown leaf at small multiples of its step, then at powers of two; others default."""
    plain, _ = _default(term, known)
    for leaf in sorted(leaves(term) - known.keys(), key=lambda x: x.name):
        yield from ({**plain, leaf: n} for k in _PLAIN if _allowed(leaf, n := k * leaf.step))


_PLAIN = (*range(32), *(1 << n for n in range(5, 24)))


def flags(term: Term, apart: Sequence[int], known: Known) -> list[Choice]:
    """Return choices that make a condition true and false; for a comparison, with sides `apart` by each number."""
    choices: list[Choice] = []
    if term.op.startswith("cmpi."):
        for n in apart:
            if (choice := _apart(term, n, known)) is not None and choice not in choices:
                choices.append(choice)
    values = {evaluate(term, c) for c in choices}
    for value in {0, 1} - values:
        if (choice := solve(term, value, known)) is not None:
            choices.append(choice)
    return choices


def values(term: Term, wanted: Sequence[int], known: Known) -> list[Choice]:
    """Return choices under which a term has the wanted values, or at least one choice with any value."""
    plain, value = _default(term, known)
    choices = [c for n in wanted if (c := solve(term, n, known)) is not None]
    return choices or ([plain] if value is not None else [])


def solve(term: Number, value: int, known: Known) -> Choice | None:
    """Return leaves' values under which the term has the value, known ones unchanged; None where none was found."""
    return next(solutions(term, value, known), None)


def solutions(term: Number, value: int, known: Known) -> Iterator[Choice]:
    """Give all choices that are found, each with another set of changed arguments."""
    by: list[set[Term]] = []
    for choice in _guesses(term, value, known):
        if evaluate(term, choice) == value and _within_grid(choice):
            changed = {leaf for leaf, n in choice.items() if n != _plain(leaf)}
            if changed not in by:
                by.append(changed)
                yield choice


def _guesses(x: Number, value: int, known: Known) -> Iterator[Choice]:
    """Give unchecked guesses."""
    now = evaluate(x, known)
    if now is None or isinstance(now, int):
        yield dict(known)
        return
    if now.leaf:
        down = value - value % now.step
        yield from ({**known, now: n} for n in (value, down, down + now.step) if _allowed(now, n))
        return
    args = now.args
    for at in (1, 0, 2) if now.op == "trips" else range(len(args)):  # rather the end of a loop than its start
        sought = args[at]
        if isinstance(sought, int):
            continue
        others: Choice = dict(known)
        for i, other in enumerate(args):
            if i != at:
                others, _ = _default(other, others)
        fixed = [evaluate(a, others) if i != at else 0 for i, a in enumerate(args)]
        if all(isinstance(f, int) for f in fixed):
            for needed in _inverse(now.op, at, [f for f in fixed if isinstance(f, int)], value):
                yield from _guesses(sought, needed, others)
    if now.op in _SAME and len(args) == 2:  # both sides the value: the least and the greatest, and, or
        for choice in _guesses(args[0], value, known):
            yield from _guesses(args[1], value, choice)


def _inverse(op: str, at: int, args: list[int], value: int) -> list[int]:
    """Return possible values of operand `at` for the operation to give the value; `args` holds the others."""
    other = args[1 - at] if len(args) == 2 else 0
    if op.startswith("cmpi."):
        beside = [other, other + 1, other - 1]
        return beside if op[5:] in ("eq", "ne") or "e" in op[5:] else [other + 1, other - 1, other]
    if op == "trips":
        low, high, step = args
        ends = [low + value * step, low + value * step - step + 1]
        return ([high - value * step], ends, [-((low - high) // value)] if value else [])[at]
    match op, at:
        case "addi", _:
            return [value - other]
        case "subi", 0:
            return [value + other]
        case "subi", 1:
            return [other - value]
        case "muli", _:
            return [value // other, value // other + 1] if other else []
        case (("divsi" | "divui" | "floordivsi"), 0):
            return [value * other + other - 1, value * other, value * other + other // 2]
        case (("ceildivsi" | "ceildivui"), 0):
            return [value * other, value * other - other + 1, value * other - other // 2]
        case "shli", 0:
            return [value >> other] if 0 <= other < 64 else []
        case (("shrsi" | "shrui"), 0):
            return [value << other, ((value + 1) << other) - 1] if 0 <= other < 64 else []
        case "xori", _:
            return [value ^ other]
        case "select", 0:
            return [1, 0]
        case "extsi.i1", _:
            return [-value]
    return [value]


_SAME = frozenset({"minsi", "minui", "maxsi", "maxui", "andi", "ori"})


def _apart(term: Term, apart: int, known: Known) -> Choice | None:
    """Return a choice under which the left side of a comparison exceeds the right by about `apart`."""
    left, right = term.args
    for side, other, n in ((left, right, apart), (right, left, -apart)):
        if isinstance(side, Term) and not leaves(side) & leaves(other):
            choice, value = _default(other, known)
            guesses = _guesses(side, value + n, choice) if value is not None else iter(())
            chosen = next(filter(_within_grid, guesses), None)
            if chosen is not None and isinstance(evaluate(term, chosen), int):
                return chosen
    return None


def _default(x: Number, known: Known) -> tuple[Choice, int | None]:
    """Return default values for unknown leaves, and the term's value under them."""
    choice = dict(known)
    for leaf in sorted(leaves(x), key=lambda x: x.name):
        choice.setdefault(leaf, _plain(leaf))
    value = evaluate(x, choice)
    return choice, value if isinstance(value, int) else None


def _plain(leaf: Term) -> int:
    return 0 if leaf.op == "pid" else leaf.step


def _within_grid(choice: Choice) -> bool:
    """Whether each program id is below the number of programs, where both are chosen."""
    programs = {leaf.name[-2]: n for leaf, n in choice.items() if leaf.op == "programs"}
    return all(n < programs.get(leaf.name[-2], n + 1) for leaf, n in choice.items() if leaf.op == "pid")


def _allowed(leaf: Term, value: int) -> bool:
    if leaf.width == 1:
        return value in (0, 1)
    least = 1 if leaf.op == "programs" else 0  # sizes: a kernel is not launched with negative ones
    return least <= value < 1 << leaf.width - 1 and value % leaf.step == 0
