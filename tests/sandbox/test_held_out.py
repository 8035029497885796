"""What a public box may read of a target: nothing that tells of held-out cases, and all else at its line."""

import pytest
from pgo_agent.sandbox import held_out
from pgo_agent.sandbox.held_out import Entangled

SECRET = "4711"
FORMS = {
    "an assignment": f"HELD_OUT = {{\n    'a': dict(n={SECRET}),\n}}\n",
    "with a type": f"HELD_OUT: dict = {{'a': dict(n={SECRET})}}\n",
    "with a comment above": f"# {SECRET} is odd\nHELD_OUT = dict(a=dict(n={SECRET}))\n",
    "of a helper": f"_ODD = ({SECRET}, 907)\n\n\ndef _of():\n    return dict(a=_ODD[0])\n\n\nHELD_OUT = _of()\n",
    "filled by a subscript": f"HELD_OUT = {{}}\nHELD_OUT['a'] = dict(n={SECRET})\n",
    "filled by an operator": f"HELD_OUT = {{}}\nHELD_OUT |= dict(a=dict(n={SECRET}))\n",
    "filled by a method": f"HELD_OUT = {{}}\nHELD_OUT.update(a=dict(n={SECRET}))\n",
    "filled by a loop": f"HELD_OUT = {{}}\nfor _n in ({SECRET}, 907):\n    HELD_OUT[str(_n)] = dict(n=_n)\n",
    "filled under a condition": f"HELD_OUT = {{}}\nif True:\n    HELD_OUT['a'] = dict(n={SECRET})\n",
    "filled by a function": f"HELD_OUT = {{}}\n\n\ndef _fill():\n    HELD_OUT['a'] = dict(n={SECRET})\n\n\n_fill()\n",
    "filled by another's function": f"HELD_OUT = {{}}\n\n\ndef _f(of):\n    of['a'] = {SECRET}\n\n\n_f(HELD_OUT)\n",
    "on a line with others": f"y = 2; HELD_OUT = dict(a=dict(n={SECRET})); z = 3\n",
}
AFTER = "x = 1\nCASES = dict(b=dict(n=x))\nSIZES = sorted(CASES)\n"


def shown(text: str) -> str:
    return held_out.without(text, held_out.statements(text))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_form_of_filling_it_leaves_a_number_and_other_names_keep_values_and_lines(form: str) -> None:
    text = form + AFTER
    before, after = dict[str, object](), dict[str, object]()
    exec(text, before)
    exec(shown(text), after)
    assert SECRET in repr(before["HELD_OUT"]) and after["HELD_OUT"] == {} and SECRET not in shown(text)
    assert [after.get(n) for n in ("x", "CASES", "SIZES", "y", "z")] == [
        before.get(n) for n in ("x", "CASES", "SIZES", "y", "z")
    ]
    assert shown(text).splitlines().index("x = 1") == text.splitlines().index("x = 1")


def test_helper_that_a_public_set_uses_too_stays() -> None:
    text = "_N = 5\nCASES = dict(a=dict(n=_N))\nHELD_OUT = dict(b=dict(n=_N + 1))\n"
    assert shown(text) == "_N = 5\nCASES = dict(a=dict(n=_N))\nHELD_OUT = {}\n"


def test_set_that_is_public_as_well_keeps_its_cases() -> None:
    text = "CASES = HELD_OUT = {'a': dict(n=9)}\n"
    after = dict[str, object]()
    exec(shown(text), after)
    assert after["HELD_OUT"] == {} and after["CASES"] == {"a": {"n": 9}}


def test_statement_that_fills_public_sets_too_is_refused_with_its_line() -> None:
    text = "CASES, HELD_OUT = {}, {}\nfor n in (1, 2):\n    HELD_OUT[n] = n\n    LAST = n\nx = LAST\n"
    with pytest.raises(Entangled, match="line 2 fills HELD_OUT and defines LAST"):
        held_out.statements(text)


def test_of_a_candidate_nothing_goes_that_its_target_has_not() -> None:
    target = "HELD_OUT = dict(a=1)\n\n\ndef kernel():\n    return FLAG\n"
    lie = "def _lie():\n    global FLAG\n    FLAG = len(HELD_OUT.setdefault('b', 'cd'))\n\n\n_lie()\n"
    candidate = f"FLAG = 0\n{target}\n\n{lie}"
    space: dict[str, object] = {}
    exec(held_out.without(candidate, held_out.statements(target)), space)
    assert space["FLAG"] == 2
