"""`pgo-agent export RUN[/CANDIDATE] --as FORM --to DIR`: writes a candidate into a new folder, and says what it is."""

import shutil
import tempfile
from pathlib import Path

from pgo_agent.agent.commands.export import chosen as choosing
from pgo_agent.agent.commands.export import forms
from pgo_agent.agent.commands.export.chosen import Chosen
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault


def write(store: Store, named: str, form: str, to: Path, dispatch: bool = False) -> tuple[Chosen, list[Path]]:
    """Write a candidate, or what was proven as a dispatch of the run; return it, and the files.

    Raises UsageFault for a candidate or a target that cannot leave in that form, and for a folder that is there,
    EnvironmentFault where nothing can be written.
    """
    texts = forms.of(form)
    chosen = choosing.dispatched(store, named) if dispatch else choosing.of(store, named)
    if to.exists():
        raise UsageFault(f"{to} is there already", "name a folder that is not there yet")
    files = texts(chosen)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=".pgo-export-") as part:
            place = Path(part) / "written"
            for name, text in files.items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(text, encoding="utf-8")
            shutil.move(place, to)
    except OSError as e:
        raise EnvironmentFault(f"cannot write {to}: {e.strerror}", "name another folder with --to") from None
    return chosen, [to / name for name in files]
