"""TTGIR as files: `show --ttgir` writes what a run built, a person edits one of them, and `check` judges it.

The head of each file names the kernel that it replaces (`// replaces:`, read by `sandbox/build/ttgir_override.py`) and
the configuration at which the launcher launches it (`// at:`).
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.launch_sites import Config, numbers, sites, with_configs
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

_AT = re.compile(r"^// at: (\{.*\})\s*$", re.M)


def launcher(source: str, text: str, others: Sequence[Config]) -> str:
    """Return the kernel file with the configuration that a TTGIR text is for, and with `others`, of the other cases.

    A text that names none is for one of the file's own. Raises UsageFault if its line cannot be read.
    """
    wanted = at(text)
    if wanted is None:
        return source
    launches = sites(source)
    for i, site in enumerate(launches):
        configs = [c for config in (wanted, *others) if (c := launch_config.config_of(site, launches, config))]
        options = [c for n, c in enumerate(configs) if c not in configs[:n]]
        with suppress(DoesNotApply):  # then it stays as it is written
            if options:
                source = with_configs(source, sites(source)[i], options if site.autotuned else options[:1])
    return source


def at(text: str) -> Config | None:
    """Return the configuration that a TTGIR text names; None if it names none. Raises UsageFault if it is not valid."""
    line = _AT.search(text)
    if line is None:
        return None
    try:
        config = json.loads(line[1])
    except ValueError:
        config = None
    if not isinstance(config, dict) or not all(isinstance(v, bool | int | str | None) for v in config.values()):
        raise UsageFault(f"{line[0].strip()[:100]} is not a configuration", 'write it like // at: {"BLOCK": 128}')
    return config


def write(store: Store, name: str, which: str, folder: Path) -> list[Path]:
    """Write the TTGIR of every kernel that `shipped`, `tuned` or a candidate launches; return the files.

    The first line of each names its kernel, so that a changed copy can be given to `check`. Raises UsageFault if it was
    not built or launches none, EnvironmentFault if the folder cannot be written.
    """
    run, written = store.run(name), dict[str, Path]()
    for case, plans in _plans(store, run, which).items():
        for bundle, label, config in plans:
            manifest = store.contents.manifest(bundle)
            for key in dict.fromkeys(s["kernel"] for s in manifest["plans"][case][label]["steps"] if "kernel" in s):
                kernel = manifest["kernels"][key]
                path = folder / f"{case.split('/')[-1]}.{kernel['name']}.{key[:8]}.ttgir"
                text = store.contents.get(kernel["files"]["ttgir"], "ttgir").decode()
                written.setdefault(key, _put(path, f"// replaces: {key}\n// at: {json.dumps(config)}\n{text}"))
    if not written:
        raise UsageFault(f"{which} launches no kernel: torch operators alone run", "name a candidate that launches one")
    return list(written.values())


def _plans(store: Store, run: Run, which: str) -> dict[str, list[tuple[str, str, Config]]]:
    """(bundle, label, configuration) of each plan of each case."""
    if which in ("shipped", "tuned"):
        if run.baseline is None:
            raise UsageFault(f"run {run.id} has no baseline yet", f"pgo-agent resume {run.id}")
        return {case: [(p.bundle, p.choice, numbers(p.config))] for case, p in run.baseline.best(which).items()}
    c = store.candidate(run.id, which)
    if not c.has_bundle:
        raise UsageFault(f"candidate {c.id} was not built: {c.reason}", "choose another")
    return {
        case: [(c.build.bundle, o.label, numbers(o.config)) for o in options]
        for case, options in c.build.choices.items()
    }


def _put(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as e:
        raise EnvironmentFault(f"cannot write {path}: {e.strerror}", "give another folder") from None
    return path
