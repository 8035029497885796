"""Answers a spool, forked as commands are; the arguments are those of `python -m pgo_agent.sandbox.judge`."""

import sys

from pgo_agent.sandbox.judge.spool import server


def main() -> None:
    sys.exit(server.main(sys.argv[1:]))
