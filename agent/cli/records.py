"""The commands that read a workspace's record and change nothing in it. Heavy imports wait for their command."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import WORKSPACE, HtmlOption, JsonOption, MarkdownOption, RunArgument, StoreOption

records = typer.Typer()


@records.command(epilog="Exit codes: 0 written, 2 usage, 3 environment.")
def recording(
    run: RunArgument = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it here, not to stdout.")] = None,
    store: StoreOption = WORKSPACE,
) -> None:
    """Write what a run asked its model, and the replies, as JSON lines: `--model replay:FILE` gives them again."""
    from pgo_agent.agent.commands import recordings

    with runner.faults(), runner.opened(store) as opened:
        text = recordings.write(opened, run, output)
        print(f"{output} written" if output else text, end="\n" if output else "")


@records.command(epilog="Exit codes: 0 shown, 2 usage, 3 environment.")
def lessons(
    file: Annotated[Path, typer.Argument(help="The target: a kernel file, or a kernel that ships: fa_fwd.")],
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Say what earlier runs of a target teach the next one: wins, near misses, failures; at most a screen of lines."""
    from pgo_agent.agent.views import show as shown

    with runner.faults(json_lines), runner.opened(store) as opened:
        shown.lessons(opened, file, json_lines)


@records.command(epilog="Exit codes: 0 accepted, 1 it is not, 2 usage, 3 environment.")
def verdict(
    file: Annotated[Path, typer.Argument(help="A kernel file.")],
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Say what this workspace knows of exactly the text of a file: only `accepted` may be called faster."""
    from pgo_agent.agent.commands import verdicts

    with runner.faults(json_lines), runner.opened(store) as opened:
        raise typer.Exit(verdicts.tell(opened, file, json_lines))


@records.command(epilog="Exit codes: 0 printed, 2 usage.")
def schema(
    name: Annotated[
        str,
        typer.Argument(
            help="events (a line of optimize, check, resume), runs, show, verdict, lessons, init, dry-run, doctor, "
            "profile, prove, recording (a line), eval-gate, eval-compare, eval-mutants, eval-ablation, eval-nightly, "
            "eval-field."
        ),
    ] = "events",
) -> None:
    """Print the JSON Schema of what a command prints with --json: docs/schemas/ holds them, too."""
    import json

    from pgo_agent.agent.commands import schemas
    from pgo_agent.evals import schemas as of_evals
    from pgo_agent.sandbox.errors import UsageFault

    with runner.faults():
        known = {n: room for room in (schemas, of_evals) for n in room.NAMES}
        if name not in known:
            raise UsageFault(f"there is no schema called {name}", f"there are: {', '.join(known)}")
        print(json.dumps(known[name].schema(name), indent=1))


skills = typer.Typer(
    no_args_is_help=True, help="The skill that teaches coding agents to use pgo-agent: docs/agents.md."
)
records.add_typer(skills, name="skill")


@skills.command("install", epilog="Exit codes: 0 written, 2 usage, 3 environment.")
def install(
    claude: Annotated[bool, typer.Option("--claude", help="Into .claude/skills, here.")] = False,
    codex: Annotated[bool, typer.Option("--codex", help="Into .agents/skills, here.")] = False,
    folder: Annotated[Path | None, typer.Option("--dir", help="Into this folder of skills.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that differ.")] = False,
) -> None:
    """Write the skill where a coding agent finds it, with the stop hook beside it."""
    from pgo_agent.agent.commands import skills as skill

    with runner.faults():
        from pgo_agent.sandbox.errors import UsageFault

        folders = [
            *([skill.CLAUDE] if claude else []),
            *([skill.CODEX] if codex else []),
            *([folder] if folder else []),
        ]
        if not folders:
            raise UsageFault("no folder is named", "give --claude, --codex or --dir DIR")
        for one in folders:
            print(*(f"{path} written" for path in skill.install(one, force)), sep="\n")


@records.command()
def runs(store: StoreOption = WORKSPACE, json_lines: JsonOption = False) -> None:
    """List the runs of a workspace."""
    from pgo_agent.agent.views import show as shown

    with runner.faults(json_lines), runner.opened(store) as opened:
        shown.runs(opened, json_lines)


@records.command()
def show(
    run: RunArgument = "last",
    candidate: Annotated[str | None, typer.Argument(help="Id of a candidate, or the beginning of one.")] = None,
    source: Annotated[bool, typer.Option("--source", help="Print the candidate's whole file.")] = False,
    ttgir: Annotated[
        Path | None,
        typer.Option(
            help="Write the TTGIR of its kernels into this folder ('shipped' and 'tuned' are candidates, too)."
        ),
    ] = None,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Show a run with all its candidates, or one candidate with its diff, builds and evidence."""
    from pgo_agent.agent.run import ttgir_files
    from pgo_agent.agent.views import show as shown

    with runner.faults(json_lines), runner.opened(store) as opened:
        if ttgir is not None:
            print(*ttgir_files.write(opened, run, candidate or "tuned", ttgir), sep="\n")
        elif candidate is None:
            shown.run(opened, run, json_lines)
        else:
            shown.candidate(opened, run, candidate, source, json_lines)


@records.command(epilog="Exit codes: 0 written, 2 usage, 3 environment.")
def report(
    run: RunArgument = "last",
    html: HtmlOption = None,
    markdown: MarkdownOption = None,
    store: StoreOption = WORKSPACE,
) -> None:
    """Write what a run gained and why, with its evidence: a page that loads nothing, and Markdown for a pull request.

    With neither --html nor --markdown it writes both here: RUN-report.html and RUN-report.md.
    """
    from pgo_agent.agent.views.report import write

    with runner.faults(), runner.opened(store) as opened:
        write.write(opened, run, write.ReportPaths(html, markdown))


@records.command()
def apply(
    run: RunArgument = "last",
    candidate: Annotated[str | None, typer.Argument(help="An accepted candidate; default: the winner.")] = None,
    branch: Annotated[str | None, typer.Option(help="Commit onto a new git branch of this name instead.")] = None,
    to_source: Annotated[
        bool, typer.Option("--to-source", help="Into the file that `init FILE -- PROGRAM` took the target from.")
    ] = False,
    dispatch: Annotated[
        bool, typer.Option("--dispatch", help="What `dispatch RUN` has proven: winners behind guards, else your own.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = WORKSPACE,
) -> None:
    """Write the winner into your file (only the kernel part): the diff first, a backup beside it."""
    from pgo_agent.agent.commands import apply as applying

    with runner.faults(), runner.opened(store) as opened:
        change = applying.plan(opened, run, candidate, to_source, dispatch)
        print(change.diff, end="")
        if not yes and not (sys.stdin.isatty() and typer.confirm("Write this?", err=True)):
            print("nothing was written; --yes writes without asking", file=sys.stderr)
            raise typer.Exit(1)
        if branch:
            print(f"branch {branch}: commit {applying.branch(change, branch)}")
        else:
            print(f"{change.path} written; the original is {applying.write(change)}")


@records.command()
def diff(
    a: Annotated[str, typer.Argument(help="A candidate of the run, or 'shipped'.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    run: Annotated[str, typer.Option(help="Id of the run, or the beginning of one, or 'last'.")] = "last",
    ttgir: Annotated[bool, typer.Option("--ttgir", help="Print the normalised TTGIR diff itself.")] = False,
    store: StoreOption = WORKSPACE,
) -> None:
    """Compare two candidates: source, resources, SASS mix and TTGIR."""
    from pgo_agent.agent.views import diff as difference
    from pgo_agent.agent.views import summary

    with runner.faults(), runner.opened(store) as opened:
        difference.show(opened, run, a, b, ttgir, summary.output())
