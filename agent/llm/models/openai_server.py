"""A language model behind an OpenAI-compatible server: one prompt goes in, one text comes out.

Relies on the openai package (`chat.completions`, which every such server has) and on asyncio for a deadline of the
whole answer, however slowly it comes. Retries happen here alone. Those of openai are switched off: they stop at the
headers, so they do not ask again after an answer that is cut off, no JSON or too slow, and they ask sooner than a
server that wants a long wait allows; here such a wait ends the attempts with a message. If JSON is wanted, the request
holds its schema. A server that refuses the schema, or the name of the token limit, is asked again at once without it,
for the rest of this process. This module does not read what the model says, does not stream, and keeps the key out of
every message.
"""

import asyncio
import email.utils
import ipaddress
import json
import math
import os
import time
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pgo_agent.agent import text as printable
from pgo_agent.agent.llm.models.types import FREE, OPTIMIZER, Form, Gone, Reply, count, signed, whole
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

if TYPE_CHECKING:
    import ssl

    import openai

DEFAULT_URL = "https://api.openai.com/v1"
FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0  # seconds between attempts: doubled each time
LONGEST_ASKED_WAIT = 120.0  # a Retry-After above it ends the attempts
CONNECT_SECONDS = 10.0
MOST_BYTES = 16 << 20  # of an answer
SCHEMA, LIMIT, LIMIT_OF_LATE = "response_format", "max_tokens", "max_completion_tokens"  # fields of a request
_REFUSED: dict[tuple[str, str], frozenset[str]] = {}  # address and model -> fields that it was seen to refuse
AGAIN = "`pgo-agent resume` goes on from here"


class _Again(Exception):
    """An attempt failed in a way that may pass. `wait`: the seconds that the server asks for."""

    def __init__(self, problem: str, hint: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.problem, self.hint, self.wait = problem, hint, wait


class _Unsupported(Exception):
    """The server refuses a field of the request, which is the only argument."""


class ServerModel:
    """`base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY; `timeout`: seconds for one attempt.

    Raises UsageFault for an invalid name or URL, or if a server elsewhere would be asked without a key.
    """

    booked = paid = True

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

    def complete(self, prompt: str, role: str = OPTIMIZER, form: Form = FREE) -> Reply:
        """Ask the model, whatever the role, and block; not for use inside a running event loop.

        Raises Gone if the server refuses the request, cannot be reached, or does not answer in time.
        """
        began, attempt, refused = time.monotonic(), 1, set(_REFUSED.get((self._url, self.name), ()))
        while True:
            try:
                body = asyncio.run(self._ask(prompt, _fields(form, refused)))
                reply = _reply(body, self.name, time.monotonic() - began, attempt)
            except _Unsupported as e:
                refused.add(str(e))  # it is not sent again: this ends
                continue
            except _Again as e:
                wait = e.wait if e.wait is not None else min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT)
                if attempt == self.attempts or wait > LONGEST_ASKED_WAIT:
                    raise self._fault(e, attempt) from None
                attempt += 1
            else:
                _REFUSED[self._url, self.name] = frozenset(refused)
                return reply
            time.sleep(wait)

    async def _ask(self, prompt: str, fields: Mapping[str, Any]) -> bytes:
        """Make one attempt; return the raw body of the answer."""
        import httpx2  # what openai speaks HTTP with
        import openai

        try:
            async with asyncio.timeout(self.timeout), self._client() as client:
                asked = client.chat.completions.with_streaming_response.create(
                    model=self.name, messages=[{"role": "user", "content": whole(prompt)}], extra_body=dict(fields)
                )
                async with asked as answer:
                    return await _bounded(answer)
        except httpx2.InvalidURL:
            raise UsageFault(f"{self.url} is not an address of a server", "set OPENAI_BASE_URL") from None
        except openai.APIStatusError as e:
            raise self._refused(e, fields) from None
        except openai.APIConnectionError as e:
            raise self._unreachable(e.__cause__) from None
        except httpx2.HTTPError as e:
            raise self._unreachable(e) from None
        except TimeoutError:
            raise self._hung() from None
        except openai.OpenAIError as e:
            raise _Again(f"gave no usable answer ({type(e).__name__})", f"check the server; {AGAIN}") from None

    def _client(self) -> "openai.AsyncOpenAI":
        import openai

        limits = openai.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout))
        # A proxy that the environment names would be asked for this machine's own server, too.
        http_client = openai.DefaultAsyncHttpxClient(trust_env=False, verify=_tls()) if self._local else None
        return openai.AsyncOpenAI(
            api_key=self._key or "none", base_url=self._url, timeout=limits, max_retries=0, http_client=http_client
        )

    def _refused(self, e: "openai.APIStatusError", fields: Collection[str]) -> Exception:
        """The exception for an HTTP status: _Unsupported, _Again if it may pass, else Gone."""
        status, words = e.status_code, _message(e.body)
        if field := _unsupported(status, words, fields):
            return _Unsupported(field)
        detail = self._clean(words)
        if status == 401:
            return Gone(f"the server refused the key: {self.url} answered 401", "check OPENAI_API_KEY")
        if status in (408, 409, 429) or status >= 500:
            if e.code == "insufficient_quota":
                return Gone(f"the quota at {self.url} is spent{detail}", f"add to it; {AGAIN}")
            return _Again(f"answered {status}{detail}", f"wait a while; {AGAIN}", _asked_wait(e.response.headers))
        hint = {
            403: "check what the key may do",
            404: "check the model's name, and that OPENAI_BASE_URL ends as the server wants it (often in /v1)",
        }.get(status, "check the model's name and OPENAI_BASE_URL")
        return Gone(f"the model server {self.url} answered {status} for '{self.name}'{detail}", hint)

    def _unreachable(self, cause: BaseException | None) -> _Again:
        kind = type(cause).__name__
        if "Timeout" in kind and kind != "ConnectTimeout":
            return self._hung()
        why = self._clean(f"{kind}: {cause}")
        return _Again(f"cannot be reached{why}", f"start it, or set OPENAI_BASE_URL to one that runs; {AGAIN}")

    def _hung(self) -> _Again:
        return _Again(f"did not answer within {self.timeout:g} s", f"see what keeps it busy; {AGAIN}")

    def _fault(self, e: _Again, attempts: int) -> Gone:
        tries = f"{attempts} attempts" if attempts > 1 else "1 attempt"
        asked = f"; it asks to wait {e.wait:.0f} s" if (e.wait or 0) > LONGEST_ASKED_WAIT else ""
        return Gone(f"the model server {self.url} {e.problem} ({tries}){asked}", e.hint)

    def _clean(self, text: str) -> str:
        """The text of a server for a message: one short printable line without the key."""
        text = text.replace(self._key, "***") if self._key else text
        line = printable.line(text, 200)
        return f": {line}" if line else ""


@cache
def _tls() -> "ssl.SSLContext":
    """Return one context for all attempts: each would read this machine's certificates, which takes 20 ms."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def _on_loopback(url: str) -> bool:
    """Whether the server is on this machine. Raises UsageFault if the text is no http(s) URL."""
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


def _fields(form: Form, refused: Collection[str]) -> JsonObject:
    """The fields of a request beside model and messages."""
    fields: JsonObject = {}
    if form.schema is not None and SCHEMA not in refused:
        schema = {"name": "reply", "strict": True, "schema": dict(form.schema)}
        fields[SCHEMA] = {"type": "json_schema", "json_schema": schema}
    if form.most is not None:
        fields[LIMIT_OF_LATE if LIMIT in refused else LIMIT] = form.most
    return fields


def _unsupported(status: int, words: str, fields: Collection[str]) -> str:
    """The field of the request that the server probably refuses; empty if none.

    Servers word it in many ways: if one only says that the request is bad, the schema is left out.
    """
    named = any(word in words.lower() for word in (SCHEMA, "json_schema", "schema", "grammar", "structured"))
    if LIMIT in fields and LIMIT in words and status in (400, 422):
        return LIMIT
    bad = status in (400, 415, 422, 501) or (status == 500 and named)
    return SCHEMA if SCHEMA in fields and bad else ""


async def _bounded(answer: Any) -> bytes:
    body = bytearray()
    async for piece in answer.iter_bytes():
        body += piece
        if len(body) > MOST_BYTES:
            raise _Again(f"sent more than {MOST_BYTES >> 20} MiB", f"check that it is a model server; {AGAIN}")
    return bytes(body)


def _message(body: object) -> str:
    """The words in an error body, whichever of the usual shapes it has."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") or inner.get("detail") if isinstance(inner, dict) else inner
        return message if isinstance(message, str) else ""
    return body if isinstance(body, str) and "<" not in body else ""


def _asked_wait(headers: Any) -> float | None:
    """Seconds by a Retry-After header, as a number or as a date."""
    value = headers.get("retry-after", "")
    try:
        return max(float(value), 0.0) if math.isfinite(float(value)) else None
    except ValueError:
        parsed = email.utils.parsedate_tz(value)
        return max(email.utils.mktime_tz(parsed) - time.time(), 0.0) if parsed else None


def _reply(body: bytes, name: str, seconds: float, attempts: int) -> Reply:
    """Read an answer, leniently. Raises _Again if it is cut off or no chat completion."""
    hint = f"check that OPENAI_BASE_URL names a server that speaks chat.completions; {AGAIN}"
    try:
        answer = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise _Again("sent a body that is cut off, or no JSON", hint) from None
    if not isinstance(answer, dict) or "choices" not in answer:
        raise _Again("sent no chat completion", hint)
    reported, choices = answer.get("usage"), answer["choices"]
    usage = reported if isinstance(reported, dict) else {}
    spent, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    return Reply(_text(first), spent, written, seconds, signed(answer.get("model"), name), _ended(first), attempts)


def _text(choice: Mapping[str, Any]) -> str:
    """The text of a choice; empty if there is none."""
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):  # some servers send it in parts
        parts = [p.get("text") for p in content if isinstance(p, dict)]
        content = "".join(p for p in parts if isinstance(p, str))
    return whole(content) if isinstance(content, str) else ""


def _ended(choice: Mapping[str, Any]) -> str:
    """Why a reply is incomplete, in one short line; empty if it is complete."""
    message = choice.get("message")
    refusal = message.get("refusal") if isinstance(message, dict) else None
    if isinstance(refusal, str) and refusal.strip():
        return f"the model refused: {printable.line(whole(refusal), 200)}"
    causes = {
        "content_filter": "the server's filter withheld the reply",
        "length": "the reply was cut off at its limit",
    }
    reason = choice.get("finish_reason")
    return causes.get(reason, "") if isinstance(reason, str) else ""
