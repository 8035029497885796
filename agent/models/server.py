"""A language model behind an OpenAI-compatible server: one prompt goes in, one text comes out.

Relies on the openai package (`chat.completions`, which every such server has) and on asyncio for a deadline that holds
for the whole answer, however slowly it trickles. Retries happen here and nowhere else: openai's own are switched off.
It does not read what the model says (`replies.py` does), does not stream, and keeps the key out of every message.
"""

import asyncio
import email.utils
import ipaddress
import json
import math
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pgo_agent.agent.models.base import OPTIMIZER, Reply, count, signed, whole
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

if TYPE_CHECKING:
    import openai

DEFAULT_URL = "https://api.openai.com/v1"
FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0  # seconds between attempts: doubled each time
LONGEST_ASKED_WAIT = 120.0  # a Retry-After above it ends the attempts
CONNECT_SECONDS = 10.0
AGAIN = "`pgo-agent resume` goes on from here"


class _Again(Exception):
    """An attempt failed in a way that may pass. `wait`: the seconds that the server asks for."""

    def __init__(self, problem: str, hint: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.problem, self.hint, self.wait = problem, hint, wait


class ServerModel:
    """`base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY; `timeout` is the deadline of one attempt.

    Raises UsageFault when the name or the URL is not one, or when a server elsewhere would be asked without a key.
    """

    booked = True

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        attempts: int = 4,
    ) -> None:
        self.name, self.timeout, self.attempts = name.strip(), timeout, max(attempts, 1)
        self._url = (base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL).strip()
        self._key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        self._local = _on_loopback(self._url)
        self.url = _shown(self._url)
        if not self.name:
            raise UsageFault("the model has no name", "give the name that the server knows it by")
        if not self._key and not self._local:
            raise UsageFault(f"no key for the model server {self.url}", "set OPENAI_API_KEY")
        if not (self._key.isascii() and self._key.replace(" ", "").isprintable()):
            raise UsageFault("OPENAI_API_KEY holds characters that no key has", "set it again, without line breaks")

    def __repr__(self) -> str:
        return f"ServerModel({self.name!r}, {self.url!r})"

    def complete(self, prompt: str, role: str = OPTIMIZER) -> Reply:
        """Asks the model, whatever the role. Blocks; not for use inside a running event loop.

        Raises EnvironmentFault when the server refuses the request, cannot be reached, or does not answer in time.
        """
        began = time.monotonic()
        for attempt in range(1, self.attempts + 1):
            try:
                return _reply(asyncio.run(self._ask(prompt)), self.name, time.monotonic() - began)
            except _Again as e:
                wait = e.wait if e.wait is not None else min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT)
                if attempt == self.attempts or wait > LONGEST_ASKED_WAIT:
                    raise self._fault(e, attempt) from None
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _ask(self, prompt: str) -> bytes:
        """One attempt: the body of the answer, unread."""
        import httpx2  # what openai speaks HTTP with
        import openai

        try:
            async with asyncio.timeout(self.timeout), self._client() as client:
                answer = await client.chat.completions.with_raw_response.create(
                    model=self.name, messages=[{"role": "user", "content": whole(prompt)}]
                )
                return bytes(answer.content)
        except httpx2.InvalidURL:
            raise UsageFault(f"{self.url} is not an address of a server", "set OPENAI_BASE_URL") from None
        except openai.APIStatusError as e:
            raise self._refused(e) from None
        except openai.APIConnectionError as e:
            raise self._unreachable(e) from None
        except TimeoutError:
            raise self._hung() from None
        except openai.OpenAIError as e:
            raise _Again(f"gave no usable answer ({type(e).__name__})", f"check the server; {AGAIN}") from None

    def _client(self) -> "openai.AsyncOpenAI":
        import openai

        limits = openai.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout))
        # A proxy that the environment names would be asked for this machine's own server, too.
        own = openai.DefaultAsyncHttpxClient(trust_env=False) if self._local else None
        return openai.AsyncOpenAI(
            api_key=self._key or "none", base_url=self._url, timeout=limits, max_retries=0, http_client=own
        )

    def _refused(self, e: "openai.APIStatusError") -> Exception:
        """What an HTTP status means: _Again when it may pass, else an EnvironmentFault."""
        status, said = e.status_code, self._clean(_message(e.body))
        if status == 401:
            return EnvironmentFault(f"the server refused the key: {self.url} answered 401", "check OPENAI_API_KEY")
        if status in (408, 409, 429) or status >= 500:
            if e.code == "insufficient_quota":
                return EnvironmentFault(f"the quota at {self.url} is spent{said}", f"add to it; {AGAIN}")
            return _Again(f"answered {status}{said}", f"wait a while; {AGAIN}", _asked_wait(e.response.headers))
        hint = {
            403: "check what the key may do",
            404: "check the model's name, and that OPENAI_BASE_URL ends as the server wants it (often in /v1)",
        }.get(status, "check the model's name and OPENAI_BASE_URL")
        return EnvironmentFault(f"the model server {self.url} answered {status} for '{self.name}'{said}", hint)

    def _unreachable(self, e: "openai.APIConnectionError") -> _Again:
        kind = type(e.__cause__).__name__
        if "Timeout" in kind and kind != "ConnectTimeout":
            return self._hung()
        why = self._clean(f"{kind}: {e.__cause__}")
        return _Again(f"cannot be reached{why}", f"start it, or set OPENAI_BASE_URL to one that runs; {AGAIN}")

    def _hung(self) -> _Again:
        return _Again(f"did not answer within {self.timeout:g} s", f"see what keeps it busy; {AGAIN}")

    def _fault(self, e: _Again, attempts: int) -> EnvironmentFault:
        tries = f"{attempts} attempts" if attempts > 1 else "1 attempt"
        asked = f"; it asks to wait {e.wait:.0f} s" if (e.wait or 0) > LONGEST_ASKED_WAIT else ""
        return EnvironmentFault(f"the model server {self.url} {e.problem} ({tries}){asked}", e.hint)

    def _clean(self, text: str) -> str:
        """What a server said, fit for a message: one short printable line without the key."""
        text = text.replace(self._key, "***") if self._key else text
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f": {line[:200]}" if line else ""


def _on_loopback(url: str) -> bool:
    """Whether the server is on this machine. Raises UsageFault when the text is no http(s) URL."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # either may raise
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UsageFault(
            "the model server's address is not a URL", "set OPENAI_BASE_URL, e.g. http://localhost:8000/v1"
        )
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _shown(url: str) -> str:
    """The URL without what may be secret in it: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _message(body: object) -> str:
    """The words in an error body, whichever of the usual shapes it has."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        found = inner.get("message") or inner.get("detail") if isinstance(inner, dict) else inner
        return found if isinstance(found, str) else ""
    return body if isinstance(body, str) and "<" not in body else ""


def _asked_wait(headers: Any) -> float | None:
    """Seconds by a Retry-After header, as a number or as a date."""
    value = headers.get("retry-after", "")
    try:
        return max(float(value), 0.0) if math.isfinite(float(value)) else None
    except ValueError:
        parsed = email.utils.parsedate_tz(value)
        return max(email.utils.mktime_tz(parsed) - time.time(), 0.0) if parsed else None


def _reply(body: bytes, name: str, seconds: float) -> Reply:
    """Reads an answer, leniently. Raises _Again when it is cut off or no chat completion."""
    hint = f"check that OPENAI_BASE_URL names a server that speaks chat.completions; {AGAIN}"
    try:
        answer = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise _Again("sent a body that is cut off, or no JSON", hint) from None
    if not isinstance(answer, dict) or "choices" not in answer:
        raise _Again("sent no chat completion", hint)
    told = answer.get("usage")
    usage = told if isinstance(told, dict) else {}
    spent, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    return Reply(_text(answer["choices"]), spent, written, seconds, signed(answer.get("model"), name))


def _text(choices: object) -> str:
    """The first choice's text; empty when there is none."""
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):  # some servers send it in parts
        parts = [p.get("text") for p in content if isinstance(p, dict)]
        content = "".join(p for p in parts if isinstance(p, str))
    return whole(content) if isinstance(content, str) else ""
