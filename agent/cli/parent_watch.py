"""Commands that end with whoever started them: `python -m pgo_agent.agent.cli.parent_watch ARGS` is `pgo-agent ARGS`.

Standard input is the lifeline. When its other end is closed, however that process died, this process is interrupted as
by Ctrl-C, and its run can be resumed. What is written to standard input is ignored.
"""

import os
import signal
import threading

from pgo_agent.agent.exit_codes import Exit

GRACE = 10.0  # seconds that an interrupted command has to end by itself


def hold() -> None:
    """End this process when the process at the other end of its standard input ends."""
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
