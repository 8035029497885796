"""An agent that answers a relay folder, as a process of its own: `python answering.py DIR HOW REPLY [SECONDS]`.

It answers each request with the text of the file REPLY, after SECONDS. HOW: `renamed` writes it under another name
first; `streamed` lets a shell's redirection hold the reply open while it comes in pieces, SECONDS apart.
"""

import sys
import time
from pathlib import Path


def main(folder: Path, how: str, text: str, seconds: float) -> None:
    while True:
        for request in folder.glob("*-request.md"):
            reply = folder / request.name.replace("request", "reply")
            if not reply.exists():
                time.sleep(seconds)
                {"renamed": renamed, "streamed": streamed}[how](reply, text, seconds)
        time.sleep(0.05)


def renamed(reply: Path, text: str, _seconds: float) -> None:
    draft = reply.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(reply)


def streamed(reply: Path, text: str, seconds: float) -> None:
    with reply.open("w") as file:
        time.sleep(seconds)
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            file.write(half)
            file.flush()
            time.sleep(seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_text(), float((sys.argv[4:] or ["0"])[0]))
