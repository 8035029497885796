#!/usr/bin/env python3
"""A stop hook for coding agents: no kernel is called faster without an accepted verdict for exactly that file.

It reads the hook's JSON from standard input: `cwd`, and `last_assistant_message` or `transcript_path`. If the agent's
last words claim a speedup, it asks `pgo-agent verdict` for each kernel file that was written within a day, committed
or not. Exit code 2 sends the agent on, with what is missing on standard error; 0 lets it stop. Without its last words
every stop is a claim, and what cannot be found out lets nobody stop. It relies on `pgo-agent` on the PATH, and on git
where there is a repository: files that git has brought, and nobody changed for a day, are left out. PGO_AGENT_STORE
names the workspace.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

CLAIM = re.compile(
    r"""\b(?: faster | quicker | (?:speed|sped)\w*[ -](?:it[ ]|this[ ]|them[ ])?ups? | speedups? | outperform\w*
    | (?:twice|half|double|triple)[ ](?:as[ ](?:fast|quick)|the[ ](?:time|speed|runtime|latency|throughput))
    | (?:time|runtime|latency|throughput|performance|bandwidth|speed)\b[^.\n]{0,40}?
      (?:\bby[ ]\d|\d[ ]?%|\bdoubl|\bhalv|\btripl|\bimprov|\bdropp|\bfell\b|\breduc|\bcut\b)
    | (?:improv\w*|reduc\w*|cuts?|halv\w*|doubl\w*)[ ][^.\n]{0,40}?
      (?:time|runtime|latency|throughput|performance|bandwidth|speed)\b
    | from[ ][\d.]+[ ]?(?:ms|us|\u00b5s|s|seconds|TFLOP\S*|GB/s)[ ]to[ ][\d.] )
    | \b\d+(?:\.\d+)?[ ]?[x\u00d7](?![ ]?\d|\w) | \b\d+(?:\.\d+)?-fold | \b\d+(?:\.\d+)?[ ]?%[ ](?:less|faster|more)""",
    re.I | re.X,
)
# What denies a claim stands in its own clause, but that nothing was measured may stand anywhere in the sentence.
DENIED = re.compile(
    r"\b(?:not|nothing|no|isn't|never)\b(?! only| just)[^.\n]{0,40}\b(?:measured|timed|faster|accepted|speed-?up)", re.I
)
UNMEASURED = re.compile(
    r"\b(?:not|nothing|isn't|wasn't|never)\b(?! only| just)[^.,;\n]{0,30}\b(?:measured|timed|judged)", re.I
)
CLAUSE = re.compile(r"[;,:]|\bbut\b|\band\b", re.I)
RECENT = 24 * 3600.0  # seconds: longer ago than a session
ELSEWHERE = {"node_modules", "site-packages", "dist-packages", "__pycache__"}  # folders of what others wrote
KERNEL = re.compile(r"^\s*@(?:\w+\.)*jit\b", re.M)


def last_words(hook):
    """Return what the agent said last; None if the hook does not tell."""
    if isinstance(hook.get("last_assistant_message"), str):
        return hook["last_assistant_message"]
    try:
        lines = Path(hook["transcript_path"]).read_text(encoding="utf-8", errors="replace").splitlines()
    except (KeyError, TypeError, OSError):
        return None
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        message = entry.get("message", entry) if isinstance(entry, dict) else {}
        if isinstance(message, dict) and message.get("role") == "assistant":
            content = message.get("content", "")
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            text = "\n".join(str(p.get("text", "")) for p in parts if isinstance(p, dict) and p.get("type") == "text")
            if text.strip():
                return text
    return None


def claims(words):
    """Whether a sentence says that something is faster, and does not say that it is not, or was not measured."""
    sentences = [s for s in re.split(r"(?<=[.!?])\s+|\n", words) if not UNMEASURED.search(s)]
    return any(CLAIM.search(c) and not DENIED.search(c) for s in sentences for c in CLAUSE.split(s))


def recent_kernels(folder):
    """Return the Python files with Triton or Gluon kernels that were written within a day. Raises OSError."""

    def git(*words):
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
        return done.stdout.rstrip("\n") if done.returncode == 0 else None

    folder = Path(folder).resolve(strict=True)
    try:
        top = git("rev-parse", "--show-toplevel")
    except OSError:  # no git here
        top = None
    since = time.time() - RECENT
    for path in sorted(_python_files(Path(top) if top else folder)):
        if path.stat().st_mtime < since or not KERNEL.search(path.read_text(encoding="utf-8", errors="replace")):
            continue
        committed = git("log", "-1", "--format=%ct", "--", str(path)) if top else None
        if committed and float(committed) < since and git("diff", "--quiet", "HEAD", "--", str(path)) is not None:
            continue
        yield path


def _python_files(folder):
    for where, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in ELSEWHERE]
        yield from (Path(where, n) for n in names if n.endswith(".py") and Path(where, n).is_file())


def lacking(folder):
    """Yield what is missing, a line for each kernel file without an accepted verdict. Raises OSError."""
    for path in recent_kernels(folder):
        done = subprocess.run(
            ["pgo-agent", "verdict", str(path)], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = " ".join((done.stdout.strip() or done.stderr.strip()).split())
            yield f"{path}: {said}"


def main():
    try:
        hook = json.load(sys.stdin)
    except ValueError:
        hook = {}
    hook = hook if isinstance(hook, dict) else {}
    words = last_words(hook)
    if words is not None and not claims(words):
        return 0
    try:
        missing = list(lacking(hook.get("cwd") or "."))
    except (OSError, TypeError, ValueError) as e:
        missing = [f"the verdicts cannot be asked for: {e}"]
    if not missing:
        return 0
    print("Nothing may be called faster without an accepted verdict for exactly that file:", *missing,
          "Have it judged (pgo-agent check, or submit), or say plainly that it is not measured.",
          sep="\n- ", file=sys.stderr)  # fmt: skip
    return 2


if __name__ == "__main__":
    sys.exit(main())
