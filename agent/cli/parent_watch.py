"""Commands that end with whoever started them: `python -m pgo_agent.agent.cli.parent_watch ARGS` is `pgo-agent ARGS`.

Standard input is the lifeline: when its other end is closed, however that process died, this one is interrupted as by
Ctrl-C, and what it was at can be resumed. It takes nothing that is written there.
"""

import os
import signal
import threading

from pgo_agent.agent.exit_codes import Exit

GRACE = 10.0  # seconds in which what was interrupted ends by itself


def hold() -> None:
    """From here on this process ends with the one at the other end of its standard input."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(GRACE)
    os._exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    from pgo_agent.agent.cli import main

    hold()
    main.main()
