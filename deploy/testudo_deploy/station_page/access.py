"""Who may ask the station page's server: the page itself, and no other page of the same browser; pure.

Any web page can send requests to 127.0.0.1, and can make a name of its own resolve to that address (DNS rebinding). So
every request must name this host and port, none may come from another origin, and all that shows or commands robots
carries a token that only the printed address holds. The token stands behind the `#`, which browsers never send: scripts
of the page send it in a header, for which another page would need a permission (CORS) that this server never gives.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

HOST = "127.0.0.1"
TOKEN_HEADER = "X-Testudo-Token"  # noqa: S105 -- the name of a header
_NAMES = (HOST, "localhost")
"""The second is that of an SSH tunnel with the same port."""
_OWN_SITE = ("same-origin", "none")  # none: typed, or from a bookmark
_REPORT_DIGITS = 32


class PageAccess:
    """The rules for one server."""

    def __init__(self, port: int, token: str | None = None) -> None:
        """Take the port, and a token; by default one of 256 random bits."""
        self._hosts = tuple(f"{name}:{port}" for name in _NAMES)
        self._token = token or secrets.token_urlsafe(32)
        self._report_key = secrets.token_bytes(32)
        self.address = f"http://{HOST}:{port}/#{self._token}"
        """What the operator opens."""

    def refusal(self, headers: Mapping[str, str], *, commands: bool = False) -> str:
        """Return why a request is refused, empty if it is not, by its host and origin.

        Args:
            headers: of the request, their names in small letters.
            commands: the request commands something, so that its origin must be named.
        """
        if headers.get("host", "") not in self._hosts:
            return f"Host: expected {' or '.join(self._hosts)}"
        origin = headers.get("origin")
        if (origin is not None or commands) and origin != f"http://{headers['host']}":
            return "Origin: expected this page"
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _OWN_SITE:
            return "Sec-Fetch-Site: expected this page"
        return ""

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request carries the token; ``headers`` as in `refusal`."""
        return hmac.compare_digest(headers.get(TOKEN_HEADER.lower(), "").encode(), self._token.encode())

    def report_key(self, run: str) -> str:
        """Return what the address of a run's report holds in place of the token, as links carry no header.

        It opens this report and nothing else.
        """
        return hmac.new(self._report_key, run.encode(), hashlib.sha256).hexdigest()[:_REPORT_DIGITS]

    def opens_report(self, run: str, key: str) -> bool:
        """Return whether a key is that of a run's report."""
        return hmac.compare_digest(self.report_key(run).encode(), key.encode(errors="replace"))
