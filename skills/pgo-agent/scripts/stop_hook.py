#!/usr/bin/env python3
"""A stop hook for coding agents: no kernel is called faster without an accepted verdict for exactly that file.

It reads the hook's JSON from standard input: `cwd`, and `last_assistant_message` or `transcript_path`. If the agent's
last words claim a speedup and git shows changed kernel files, it asks `pgo-agent verdict` for each. Exit code 2 sends
the agent on, with what is missing on standard error; 0 lets it stop. Without its last words every stop is a claim.
It relies on git, `pgo-agent` on the PATH and nothing else; PGO_AGENT_STORE names the workspace.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

CLAIM = re.compile(
    r"\b(?:faster|quicker|speed-?ups?|outperform\w*|\d+(?:\.\d+)?\s?[x\u00d7](?!\w)|\d+(?:\.\d+)?\s?% less)", re.I
)
DENIED = re.compile(
    r"\b(?:not|nothing|no|isn't|never)\b[^.\n]{0,40}\b(?:measured|timed|faster|accepted|speed-?up)", re.I
)
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
    """Whether a sentence says that something is faster, and does not say that it is not."""
    return any(CLAIM.search(s) and not DENIED.search(s) for s in re.split(r"(?<=[.!?])\s+|\n", words))


def changed_kernels(folder):
    """Return the changed and the new Python files of the repository that hold Triton or Gluon kernels."""

    def git(*words):
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
        return [line for line in done.stdout.splitlines() if line] if done.returncode == 0 else []

    top = Path((git("rev-parse", "--show-toplevel") or [str(folder)])[0])
    names = {*git("diff", "--name-only", "HEAD"), *(str(Path(folder, n).resolve().relative_to(top.resolve()))
             for n in git("ls-files", "--others", "--exclude-standard"))}  # fmt: skip
    paths = [top / n for n in sorted(names) if n.endswith(".py")]
    return [p for p in paths if p.is_file() and KERNEL.search(p.read_text(encoding="utf-8", errors="replace"))]


def main():
    try:
        hook = json.load(sys.stdin)
    except ValueError:
        hook = {}
    hook = hook if isinstance(hook, dict) else {}
    folder = Path(hook.get("cwd") or ".")
    words = last_words(hook)
    if words is not None and not claims(words):
        return 0
    missing = []
    for path in changed_kernels(folder):
        done = subprocess.run(
            ["pgo-agent", "verdict", str(path)], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = " ".join((done.stdout.strip() or done.stderr.strip()).split())
            missing.append(f"{path}: {said}")
    if not missing:
        return 0
    print("Nothing may be called faster without an accepted verdict for exactly that file:", *missing,
          "Have it judged (pgo-agent check, or submit), or say plainly that it is not measured.",
          sep="\n- ", file=sys.stderr)  # fmt: skip
    return 2


if __name__ == "__main__":
    sys.exit(main())
