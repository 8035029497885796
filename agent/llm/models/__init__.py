"""The models that answer prompts, behind one interface (`types.py`): a server, a folder of files, or a recording.

Each module is imported only when `--model` names it.
"""

from contextlib import suppress
from pathlib import Path

from pgo_agent.agent.llm.models.types import Asker, Model
from pgo_agent.sandbox.errors import UsageFault

EMBEDDED = "embedded"  # the moves alone: no model is asked


def named(text: str, asker: Asker) -> Model | None:
    """Return the model that `--model` names: `relay:DIR`, `replay:FILE`, or a name on a server; None for `embedded`.

    Raises UsageFault for an invalid name, before anything is asked.
    """
    kind, colon, _ = text.strip().partition(":")
    if text.strip() in ("", EMBEDDED):
        return None
    if colon and kind == "relay":
        from pgo_agent.agent.llm.models.relay import RelayModel

        return RelayModel(path(text), asker)
    if colon and kind == "replay":
        from pgo_agent.agent.llm.models.replay import ReplayModel

        return ReplayModel(path(text), asker)
    from pgo_agent.agent.llm.models.openai_server import ServerModel

    return ServerModel(text)


def path(text: str) -> Path:
    """Return the absolute path behind the colon. Raises UsageFault where there is none."""
    rest = text.strip().partition(":")[2].strip()
    if not rest:
        raise UsageFault(f"'{text}' names no path", "give one, as --model relay:DIR or --model replay:FILE")
    named_path = Path(rest)
    with suppress(RuntimeError):  # no such user: then it is a name like any other
        named_path = named_path.expanduser()
    return named_path.absolute()
