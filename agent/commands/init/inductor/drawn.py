"""Random numbers of a reference, as the kernels of PyTorch's compiler draw them: by Triton's Philox, of a seed and the
place of an element.

So a dropout is compared element for element. Which words of Philox an element takes, the kernel's text says: `tl.rand`
the first of its own four, `rand4x` one of the four that it shares with its neighbours. Relies on the group's launches.
"""

import re
from collections.abc import Mapping

from pgo_agent.agent.commands.init.inductor.groups import Group

DRAWN = '''
def drawn(seed, size, lanes, normal=False, exact=False):
    """Random numbers in [0, 1), or normal ones, as Triton's Philox draws them for each place: Philox 4x32 with ten
    rounds of a seed and `place // lanes`, of whose four words the element takes that of `place % lanes`. As float32, or
    float64 where the exact result is computed."""

    def product(a, b):
        return (((a >> 16) * b + ((a & 0xFFFF) * b >> 16)) >> 16), a * b & 0xFFFFFFFF

    place = torch.arange(torch.Size(size).numel(), device=seed.device)
    keys, words = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF), [place // lanes, *[torch.zeros_like(place)] * 3]
    for _ in range(10):
        (high, low), (high2, low2) = product(0xD2511F53, words[0]), product(0xCD9E8D57, words[2])
        words = [high2 ^ words[1] ^ keys[0], low2, high ^ words[3] ^ keys[1], low]
        keys = (keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF
    words = torch.stack(words)
    uniform = torch.where(words < 1 << 31, words, (1 << 32) - 1 - words).float() * 4.6566127342e-10
    lane, dtype = place % lanes, torch.float64 if exact else torch.float32
    if not normal:
        return uniform[lane, place].view(size).to(dtype)
    first, second = (uniform[lane // 2 * 2 + i, place].double() for i in range(2))
    angle, radius = 6.283185307179586 * second, (-2.0 * first.clamp(min=1.0e-7).log()).sqrt()
    return (radius * torch.where(lane % 2 == 0, angle.cos(), angle.sin())).view(size).to(dtype)
'''
_FORMS = {r"\btriton_helpers\.randn?4x\(": 4, r"\btl\.randn?\(": 1}


def lanes(group: Group) -> Mapping[str, int]:
    """Return, for each random tensor that one of the module's kernels draws in a known way, how many elements share
    one state of Philox."""
    found = dict[str, int]()
    for launch in (one for of in group.every for one in of.launches):
        random = [n.name for n in launch.fragment.nodes.values() if n.op == "inductor_random"]
        forms = [n for form, n in _FORMS.items() if random and re.search(form, launch.kernel.text)]
        if len(forms) == 1:
            found |= dict.fromkeys(random, forms[0])
    return found


def is_seed(group: Group, name: str) -> bool:
    """Whether an input holds seeds, and nothing else is done with it."""
    readers = [n for n in group.nodes.values() if name in n.reads]
    return bool(readers) and all(n.op == "inductor_lookup_seed" for n in readers)
