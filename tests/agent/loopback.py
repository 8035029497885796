"""What stands in for a model: a real HTTP server that answers by a script, and a collection of what models write.

The collection is about one small file, SOURCE, in whose kernel part PART the store is to become that of NEW.
"""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pgo_agent.agent.kernel_part import kernel_part


@dataclass(frozen=True)
class Answer:
    """What one request gets."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None  # Content-Length, when it is to be a lie
    hangs: bool = False  # says nothing at all
    trickles: bool = False  # sends a byte now and then, for ever
    resets: bool = False  # drops the connection without a word
    chunked: bool = False  # sends the body as one piece of a stream whose end never comes


def completion(text: str | None = "done", **more: Any) -> Answer:
    """A usual answer; `more` replaces or adds top-level fields."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    fields = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny-1", "choices": choices}
    return Answer(json.dumps(fields | {"usage": usage} | more).encode())


def ended(text: str | None, reason: str, refusal: str | None = None) -> Answer:
    """An answer that is not all that the model would have said, and why."""
    message = {"role": "assistant", "content": text} | ({"refusal": refusal} if refusal else {})
    return completion(choices=[{"index": 0, "message": message, "finish_reason": reason}])


def failure(status: int, message: str = "no", **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message, "type": "t", "code": None}}).encode()
    return Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass
class Server:
    url: str
    script: list[Answer]  # the last one is repeated
    requests: list[dict[str, Any]] = field(default_factory=list)  # path, headers and body of each request
    closing: threading.Event = field(default_factory=threading.Event)

    def next(self) -> Answer:
        return self.script[min(len(self.requests), len(self.script)) - 1]


@contextmanager
def serving(script: Sequence[Answer]) -> Iterator[Server]:
    """A server with this script, gone afterwards, whatever hangs on it."""
    server = Server("", list(script))

    class Handler(_Handler):
        plays = server

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    plays: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.plays.requests.append(
            {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": json.loads(body)}
        )
        answer = self.plays.next()
        self.close_connection = True
        if answer.hangs:
            self.plays.closing.wait()
        elif answer.resets:
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        length = len(answer.body) if answer.promised is None else answer.promised
        size = {"Transfer-Encoding": "chunked"} if answer.chunked else {"Content-Length": str(length)}
        fields = {"Content-Type": "application/json", "Connection": "close"} | size
        for name, value in (fields | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(answer.body), answer.body) if answer.chunked else answer.body)
        while answer.trickles and not self.plays.closing.wait(0.1):
            self.wfile.write(b" ")

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            """The client went away, as it should after its deadline."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the terminal."""


def unused_url() -> str:
    """An address of this machine at which nothing listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}/v1"


# what models write ----------------------------------------------------------------------------------------------------

SOURCE = '''\
"""Adds."""

import math

import triton
import triton.language as tl

# Odd sizes only: 99_991.
HELD_OUT = {"secret": dict(n=99_991)}
LAUNCH_SPACE = {"BLOCK": [512, 1024]}
CONFIGS = [triton.Config({"BLOCK": b}) for b in LAUNCH_SPACE["BLOCK"]]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def _add(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n

    y = tl.load(x_ptr + at, mask=inside)
    tl.store(x_ptr + at, y + 1, mask=inside)


# The reference adds in an order of its own.
def _by_hand(x):
    return sum([1, x])


def _blocks(n):
    return math.ceil(n / 512)


def reference(x):
    return _by_hand(x) + _blocks(0)


def kernel(x):
    _add[(_blocks(x.numel()),)](x, x.numel())
    return x


def inputs(case, generator): return {}
CASES, SMALL = {}, {}; TOLERANCE = {"mean": 1.375}
def flops(case): return 1  # once
def bytes_moved(case): return 1
HELD_OUT["more"] = dict(n=77_773)
'''
PART = kernel_part(SOURCE)
NEW = PART.replace("y + 1", "1 + y")


def indented(text: str, by: str = "    ") -> str:
    return "".join(by + line if line.strip() else line for line in text.splitlines(keepends=True))


def code(text: str = NEW, info: str = "python") -> str:
    return f"```{info}\n{text}```\n"


def edit(search: str, put: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{put}\n>>>>>>> REPLACE\n"


STORE, STORED = (f"    tl.store(x_ptr + at, {value}, mask=inside)" for value in ("y + 1", "1 + y"))
EDIT = edit(STORE, STORED)
UNDERSTOOD = {
    "an edit": EDIT,
    "an edit with chatter around": f"Sure! The store is slow.\n\n{EDIT}\nThis should help.",
    "an edit in a fence": f"```\n{EDIT}```",
    "an edit in a fence that names a file": f"kernel.py\n```python\n{EDIT}```",
    "an edit with fences inside": edit(
        "```python\n    tl.store(x_ptr + at, y + 1, mask=inside)\n```",
        "```\n    tl.store(x_ptr + at, 1 + y, mask=inside)\n```",
    ),
    "an edit with longer markers and words behind them": EDIT.replace("<<<<<<<", "<<<<<<<<<").replace(
        "REPLACE", "REPLACE (done)"
    ),
    "an edit with lower case markers": EDIT.replace("SEARCH", "search").replace("REPLACE", "replace"),
    "an edit without the last word": EDIT.replace(" REPLACE", ""),
    "an edit with CRLF": EDIT.replace("\n", "\r\n"),
    "an edit with trailing spaces": EDIT.replace("\n", "  \t\n"),
    "an edit that lost its indentation": EDIT.replace("\n    ", "\n"),
    "an edit that is indented as a whole": indented(EDIT, "      "),
    "an edit with blank lines around": edit(
        "\n\n    tl.store(x_ptr + at, y + 1, mask=inside)\n\n", "\n    tl.store(x_ptr + at, 1 + y, mask=inside)\n\n"
    ),
    "an edit over a blank line": edit(
        "    inside = at < n\n\n    y = tl.load(x_ptr + at, mask=inside)\n    tl.store(x_ptr + at, y + 1, mask=inside)",
        "    inside = at < n\n    y = tl.load(x_ptr + at, mask=inside)\n    tl.store(x_ptr + at, 1 + y, mask=inside)",
    ),
    "two edits, the second on top of the first": edit("    inside = at < n", "    within = at < n")
    + edit("    within = at < n", "    inside = at < n")
    + EDIT,
    "an edit after thoughts that hold another": f"<think>maybe\n{edit('    inside = at < n', '    x')}</think>\n{EDIT}",
    "an edit after thoughts without a beginning": f"or so\n{edit('nothing', 'x')}</think>{EDIT}",
    "the whole part in a fence": code(),
    "a fence without language": code(info=""),
    "a fence with words after the language": code(info="python title=kernel.py"),
    "a fence of tildes": f"~~~py\n{NEW}~~~",
    "a longer fence": f"````python\n{NEW}````",
    "a fence with chatter around": f"Here it is:\n\n{code()}\nIt uses `1 + y`.",
    "a fence in a list": "1. this:\n" + indented(code()),
    "code indented in its fence": code(indented(NEW)),
    "a fence with CRLF": code().replace("\n", "\r\n"),
    "a fence with trailing spaces": code(NEW.replace("\n", "   \n")).replace("```\n", "```  \n"),
    "a byte order mark in front": "\ufeff" + code(),
    "a snippet before the whole": f"```python\n1 + y\n```\nso\n{code()}",
    "the old text before the new": code(PART) + code(),
    "the same text twice": code() + code(),
    "a fence that is not closed": f"```python\n{NEW}",
    "code without a fence": NEW,
    "the imports left out": code(NEW.replace("import math\n", "").replace("import triton\n", "")),
    "a helper left out": code(NEW.replace("def _blocks(n):\n    return math.ceil(n / 512)\n", "")),
    "escapes that Python warns of": code(NEW.replace('"""Adds."""', '"""Adds."""  # \\d')),
}

NOT_UNDERSTOOD = {
    "nothing at all": ("", "no code found"),
    "prose": ("I would try a larger block.", "no code found"),
    "an empty fence": ("```python\n\n```", "no code found"),
    "only thoughts": (f"<think>{code()}", "no code found"),
    "a search text that is not there": (edit("    y = 5", "    y = 6"), "SEARCH text of edit 1 is not found: y = 5"),
    "a search text in the contract": (edit('HELD_OUT["more"] = dict(n=77_773)', ""), "edit 1 is not found"),
    "a line that is there twice": (
        edit("@triton.jit", "@triton.jit\n@triton.jit") + edit("@triton.jit", ""),
        "2 times",
    ),
    "half a line": (edit("y + 1", "1 + y"), "edit 1 is not found: y + 1"),
    "an empty search text": (edit(" ", "x = 1"), "edit 1 has nothing to search for"),
    "the second edit is wrong": (EDIT + edit(STORE, "x"), "edit 2 is not found"),
    "an edit without a divider": (EDIT.replace("=======\n", ""), "edit 1 has no ======= line"),
    "an edit with two dividers": (EDIT.replace("=======", "=======\n======="), "edit 1 has two ======= lines"),
    "an edit that is cut off": (EDIT.partition(">>>>>>>")[0], "edit 1 has no >>>>>>> REPLACE line: the reply is cut"),
    "an edit that is not closed before the next": (EDIT.replace(">>>>>>> REPLACE\n", "") + EDIT, "edit 1 has no >>>"),
    "too many edits": (EDIT * 101, "more than 100 edits"),
    "an edit that breaks the syntax": (edit(STORE, "    tl.store("), "is not Python ('(' was never closed): tl.store("),
    "an edit that removes the launcher": (edit("def kernel(x):", "def launch(x):"), "does not define kernel()"),
    "a fence without kernel": (code("import math\n"), "does not define kernel()"),
    "a fence with broken code": (code(NEW.replace("):", ")")), "is not Python (expected ':')"),
    "a fence that is cut off": (f"```python\n{NEW[:-30]}", "the code block is cut off: line"),
    "the same text again": (code(PART), "the reply changes nothing"),
    "nothing new but a comment": (code("# faster\n" + PART), "the reply changes nothing"),
    "an edit that changes nothing": (edit(STORE, STORE), "the reply changes nothing"),
    "a null byte": (code(NEW.replace("Adds", "Ad\0ds")), "not Python"),
    "half a character": (code(NEW.replace("Adds", "Ad\ud800ds")), "not Python"),
    "brackets without end": (code("def kernel(): " + "(" * 5000), "not Python"),
    "nested without end": (code(NEW + "z = " + "-" * 100_000 + "1\n"), "nested too deeply"),
    "an attribute of an attribute, 3000 deep": (code(NEW + "z = a" + ".b" * 3000 + "\n"), "nested too deeply"),
    "far too long": ("x" * 1_000_001, "longer than 1000000 characters"),
}
