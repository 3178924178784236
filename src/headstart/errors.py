"""The few error classes of headstart.

Every message is read by a user: it says what was wrong, what was expected and what to do.

    HeadstartError
    ├── ConfigError        a setting, flag or file that cannot be used; nothing was started
    ├── ModelError         a model that is missing, broken or of a kind the engine cannot run
    ├── RequestError       a request that cannot be served as sent; carries the HTTP status to answer with
    │   └── Overloaded     a good request at a bad moment; carries when to try again
    └── EngineError        the engine failed at work it accepted
        └── EngineFull     no room for another live sequence, or for more rows of one
"""

from __future__ import annotations


class HeadstartError(Exception):
    """Base of every error headstart raises on purpose."""


class ConfigError(HeadstartError):
    """A setting that cannot be used: wrong unit, unknown key, conflicting flags, port in use."""


class ModelError(HeadstartError):
    """A model that cannot be loaded: missing or broken file, unknown architecture, too large."""


class RequestError(HeadstartError):
    """A request that cannot be served as sent.

    `status` is the HTTP status to answer with, `param` the request field at fault where one is,
    `code` a short machine-readable word such as "context_length_exceeded".
    """

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


class Overloaded(RequestError):
    """The queue is full. `retry_after_s` goes out as the Retry-After header."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message, status=503, code="overloaded")
        self.retry_after_s = retry_after_s


class EngineError(HeadstartError):
    """The engine failed at work it had accepted. The sequence it concerns is lost."""


class EngineFull(EngineError):
    """No room: every live sequence is taken, or the engine has no cells left for more rows."""
