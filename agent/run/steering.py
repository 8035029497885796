"""How the loop takes requests of a person: at safe points, from the record, each request once.

Vetoes and budgets are taken before the next piece of work. Guidance, a pinned parent and a person's own candidates are
taken before a generation is proposed, and hold from then on; a generation whose model was already asked keeps its
prompt. So a resumed run decides as the killed one would have.

Requests come from `live/`. Guidance is the words of the person at the terminal: unlike kernel text it may instruct.
"""

from collections.abc import Collection

from pgo_agent.agent import text as printable
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.llm.models.budget import Guarded
from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.run import incumbent, settings
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record import prompts, user_requests
from pgo_agent.agent.run.record.candidate import USER, Candidate, NewCandidate, candidate_id
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import AT_ONCE, Kind, Steer
from pgo_agent.agent.run.settings import BUDGETS
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

AUTHOR = USER  # of a person's own candidates, and whose places they take: not `embedded`, so the sandbox holds them
AT_ONCE_OPEN = 8  # requests that a generation of an open run takes: others wait for the workspace, too
STAGE = "veto"  # of the verdict on what a person did not want judged
MOVE = "edit"
LONGEST, NEWEST = 600, 8  # characters of one piece of guidance; pieces in a prompt, the newest
Vetoed = tuple[Steer, Candidate, Judgement]


def room(ctx: Context) -> int:
    """Return the number of candidates that the budget still allows; a person's own do not count."""
    if ctx.settings.generations is not None and len(ctx.store.generations(ctx.run.id)) >= ctx.settings.generations:
        return 0
    counted = sum(c.proposer != AUTHOR for c in ctx.store.candidates(ctx.run.id))
    return max(0, ctx.settings.candidates - counted)


# what may be asked ----------------------------------------------------------------------------------------------------


def may_veto(c: Candidate) -> None:
    """Raise UsageFault if it is too late."""
    if c.verdict is not None:
        raise UsageFault(f"too late: {c.id[:8]} has its verdict, {c.verdict}", "/pin or /guide steers what comes next")


def may_pin(c: Candidate) -> None:
    """Raise UsageFault if nothing can start from it."""
    if c.verdict is None:
        raise UsageFault(f"{c.id[:8]} has no verdict yet", "pin it when it has one")
    if c.verdict in FAULTY or not c.has_bundle:
        raise UsageFault(f"{c.id[:8]} is {c.verdict}: nothing is made of it", "fix it with /edit first")
    if c.kind == "ttgir":
        raise UsageFault(f"{c.id[:8]} is TTGIR, which no move starts from", f"its source is that of {c.parent[:8]}")


def guidance_of(text: str) -> str:
    """Return the words as one printable line. Raises UsageFault for none, and for too many."""
    line = printable.line(text, LONGEST + 1)
    if not line:
        raise UsageFault("there is nothing in it that can be printed", "say it in words")
    if len(line) > LONGEST:
        raise UsageFault(f"that is longer than {LONGEST} characters", "say it shorter, or in several parts")
    return line


def budget_of(name: str, text: str, facts: RunFacts) -> user_requests.Body:
    """Return the body of a request for another budget. Raises UsageFault for an unknown budget or a bad number."""
    if name not in BUDGETS:
        raise UsageFault(f"there is no budget called {printable.line(name, 40)}", f"there are: {', '.join(BUDGETS)}")
    try:
        value = settings.kind(name)(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        kind = "a whole number" if settings.kind(name) is int else "a number"
        raise UsageFault(f"{printable.line(text, 40)} is not {kind} from 0 on", f"as in /budget {name} 30")
    if name == "money" and not facts.prices:
        raise UsageFault("no prices are known to this run", "start it with --money, or limit its tokens")
    return {"name": name, "value": value}


# what the loop takes at once ------------------------------------------------------------------------------------------


def look(ctx: Context, begun: Collection[str] = ()) -> list[Vetoed]:
    """Take budgets; return the vetoes. The caller settles their verdicts and then calls `vetoed`.

    The veto of a candidate that is being judged waits for its verdict, and is then too late.
    """
    vetoes = list[Vetoed]()
    for s in user_requests.waiting(ctx.store, ctx.run.id, *AT_ONCE):
        if s.kind is Kind.BUDGET:
            taken(ctx, s, _budget(ctx, s.body["name"], s.body["value"]))
            continue
        c = ctx.store.candidate(ctx.run.id, s.body["candidate"])
        if c.verdict == Verdict.VETOED:  # and then the process was killed
            vetoed(ctx, s)
        elif c.verdict is None and c.id in begun:
            continue
        elif c.verdict is not None:
            taken(ctx, s, f"the veto of {c.id[:8]} came too late: it is {c.verdict}")
        else:
            why = s.body.get("why") or "without a reason"
            vetoes.append((s, c, Judgement(Verdict.VETOED, STAGE, quoted(f"vetoed by the user: {why}"))))
    return vetoes


def vetoed(ctx: Context, s: Steer) -> None:
    taken(ctx, s, f"{s.body['candidate'][:8]} is vetoed, and will not be judged")


def _budget(ctx: Context, name: str, value: float) -> str:
    ctx.change({name: value})
    for model in (ctx.model, *ctx.others.values()):
        if isinstance(model, Guarded) and BUDGETS[name].of_models:
            setattr(model.purse, name, value)
    return f"the budget is {user_requests.figure(value)} {name.replace('_', ' ')} from here on"


# what it takes with a generation --------------------------------------------------------------------------------------


def begin(ctx: Context, generation: int) -> None:
    """Take the requests that hold from a generation on, unless a model was asked for that one already."""
    if prompts.asked(ctx.store, ctx.run.id, generation):
        return
    waiting = user_requests.waiting(ctx.store, ctx.run.id, Kind.GUIDE, Kind.PIN, Kind.SUBMIT)
    for s in waiting[: AT_ONCE_OPEN if ctx.run.facts.open_to else None]:
        taken(ctx, s, _outcome(ctx, s, generation), generation)


def wants_a_generation(ctx: Context, generation: int) -> bool:
    """Whether a person's own candidate waits for one, or was taken for this one by a process that was killed."""
    return bool(user_requests.waiting(ctx.store, ctx.run.id, Kind.SUBMIT) or _promised(ctx, generation))


def give_back(ctx: Context, generation: int) -> None:
    """Put back the requests for a person's own candidates whose generation does not come about."""
    for s in _promised(ctx, generation):
        user_requests.give_back(ctx.store, ctx.run.id, s.n)


def _promised(ctx: Context, generation: int) -> list[Steer]:
    """Requests for the person's own candidates that were taken for a generation and are in none."""
    ids = {c.id for c in ctx.store.candidates(ctx.run.id)}
    submits = user_requests.of(ctx.store, ctx.run.id, Kind.SUBMIT)
    return [s for s in submits if s.generation == generation and candidate_id(s.body["source"]) not in ids]


def _outcome(ctx: Context, s: Steer, generation: int) -> str:
    if s.kind is Kind.GUIDE:
        reads = f"{ctx.model.name} reads" if ctx.model is not None else "nobody reads"
        return f"{reads} what you said from generation {generation} on"
    if s.kind is Kind.PIN:
        which = s.body["candidate"]
        return f"generation {generation} starts from {which[:8]}" if which else "the search chooses its parents again"
    name = candidate_id(s.body["source"])
    if any(c.id == name for c in ctx.store.candidates(ctx.run.id)):
        return f"your text is candidate {name[:8]} already"
    return f"your candidate {name[:8]} is in generation {generation}"


def guidance(ctx: Context) -> list[str]:
    """Return the guidance that the loop took, at most NEWEST pieces, the newest last."""
    taken = [s for s in user_requests.of(ctx.store, ctx.run.id, Kind.GUIDE) if s.outcome is not None]
    return [str(s.body["text"]) for s in taken[-NEWEST:]]


def pinned(ctx: Context, generation: int | None = None) -> str:
    """Return what the person pinned for a generation, or now: `shipped` or a candidate; empty: nothing."""
    return pin_of(ctx.store, ctx.run.id, generation)


def pin_of(store: Store, run: str, generation: int | None = None) -> str:
    """Return the same from the record alone."""
    taken = [s for s in user_requests.of(store, run, Kind.PIN) if s.generation is not None]
    held = [s for s in taken if generation is None or (s.generation or 0) <= generation]
    return str(held[-1].body["candidate"]) if held else ""


def start(ctx: Context) -> str:
    """Return what a model is shown and starts from: the pinned parent, else the incumbent."""
    return pinned(ctx) or incumbent.name(ctx)


def started_from(ctx: Context, generation: int) -> str:
    """Return the same for a generation that was proposed."""
    return pinned(ctx, generation) or ctx.store.began_with(ctx.run.id, generation)


def submitted(ctx: Context, generation: int) -> list[NewCandidate]:
    """Return the person's own candidates of a generation."""
    bodies = [s.body for s in user_requests.of(ctx.store, ctx.run.id, Kind.SUBMIT) if s.generation == generation]
    return [NewCandidate.of(_proposal(b), b.get("author") or AUTHOR, str(b["parent"])) for b in bodies]


def _no_reason(body: user_requests.Body, of: str) -> str:
    return f"no reason was given; edited from {of}" if body.get("author") else f"a person's own, edited from {of}"


def _proposal(body: user_requests.Body) -> Proposal:
    of = str(body["of"])[:8]
    move = body.get("move") or f"{MOVE} of {of}"
    return Proposal(body["source"], body["kind"], move, body.get("note") or _no_reason(body, of))


# ----------------------------------------------------------------------------------------------------------------------


def taken(ctx: Context, s: Steer, outcome: str, generation: int | None = None) -> None:
    """Record what came of a request, once, and emit it."""
    now = generation or max(ctx.store.generations(ctx.run.id), default=0)
    if user_requests.take(ctx.store, ctx.run.id, s.n, now, outcome):
        ctx.emit("steer.taken", n=s.n, kind=str(s.kind), outcome=outcome)


def unread(store: Store, run: str) -> list[Steer]:
    """Return the requests that a completed run never took."""
    return user_requests.waiting(store, run)
