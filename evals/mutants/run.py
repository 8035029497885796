"""Puts mutants through the gate, as `pgo-agent eval gate` puts entries: in portions of one target, a run for each.

On a machine with a GPU the judge judges them; without, there is a portion on each core. Every base goes through by
itself, too: a mutant of one that the gate refuses would prove nothing. Who is not refused, and is of other code than
its base, has its bits compared with those of its base (`bits.py`), which decides nothing here: see `outcomes.py`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.gate import entries as corpora
from pgo_agent.evals.gate import run as gate
from pgo_agent.evals.gate.run import Outcome, Say
from pgo_agent.evals.mutants import bits
from pgo_agent.evals.mutants.generate import Mutant
from pgo_agent.evals.mutants.results import Results, Row, row
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.temporary_folders import temporary_folder
from pgo_agent.sandbox.threads import threads

PORTION = 16  # mutants of a run: without a GPU, what a run that is killed loses
PORTION_ON_GPU = 64
Each = Callable[[Row], None]


def run(
    chosen: Sequence[Mutant], settings: RunSettings, results: Results, say: Say, report: Each = lambda _: None
) -> None:
    """Judge what the results do not hold yet, and add it to them; `report` gets every new row.

    Raises what `gate.run` raises: EnvironmentFault when no sandbox works, for mutants are untrusted code.
    """
    box.choose(settings.sandbox, settings.python).admit(untrusted=True)
    alone, turn = gate.on_gpu(settings), Lock()

    def add(r: Row) -> None:
        with turn:
            results.add(r)
            report(r)

    def judge(portion: Sequence[Mutant]) -> None:
        _judge(portion, settings, results, say, add)

    portions = list(_portions(chosen, results, PORTION_ON_GPU if alone else PORTION))
    with threads(1 if alone else len(os.sched_getaffinity(0))) as pool:
        list(pool.map(judge, portions))


def _portions(chosen: Sequence[Mutant], results: Results, size: int) -> Iterator[Sequence[Mutant]]:
    """Yield what is not known yet, target by target, each base before its mutants."""
    waiting = dict.fromkeys(x for m in chosen for x in (Mutant(m.base, None), m) if not results.known(x))
    for target in dict.fromkeys(m.base.target for m in waiting):
        of_target = [m for m in waiting if m.base.target == target]
        yield from (of_target[i : i + size] for i in range(0, len(of_target), size))


def _judge(portion: Sequence[Mutant], settings: RunSettings, results: Results, say: Say, add: Each) -> None:
    """Judge mutants of one target. What a GPU judged is added at once; the bits of others are compared at the end."""
    base = portion[0].base
    by_entry = {m.name: m for m in portion}
    waiting = list[Outcome]()

    def heard(o: Outcome) -> None:
        if o.measured:
            add(row(by_entry[_name(o)], o))
        else:
            waiting.append(o)

    with temporary_folder("mutants") as place:
        entries = [m.entry for m in portion]
        gate.of_target(base.target, entries, settings, place, base.corpus, say, heard)
    plans = {m.base.name: row(m, o)["plans"] for o in waiting if (m := by_entry[_name(o)]).change is None}
    for o in waiting:
        m = by_entry[_name(o)]
        base_plans = plans.get(m.base.name) or results.rows.get(m.base.name + ":itself", {}).get("plans")
        add(row(m, o, _compared(m, o, base_plans, settings)))


def _name(o: Outcome) -> str:
    return o.entry.name.removeprefix("mutants/")


def _compared(m: Mutant, o: Outcome, plans: str | None, settings: RunSettings) -> JsonObject | None:
    """Return the bits of a source that the gate has nothing against, unless its code says that they are the same."""
    open_ = o.verdict in (*FAULTY, Verdict.BUILT) or m.change is None or m.base.suffix != ".py"
    if open_ or (plans and row(m, o)["plans"] == plans):
        return None
    with temporary_folder("mutants") as place:
        target = corpora.place(m.base.target, place, m.base.corpus)
        return bits.compare(target.path, m.base.text, m.text, settings, place)
