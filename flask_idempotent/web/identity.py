"""Who may use a token: its binding. Nothing here reads a forwarding header."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from flask import Request, session

from ..core.ids import new_owner
from ..core.keys import digest

SESSION_KEY: Final = "_idempotency_binding"
"""Where the random id of the ``session`` binding lies in the session."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_logger = logging.getLogger(__name__)


@lru_cache(maxsize=4096)
def network(address: str, ipv4_prefix: int, ipv6_prefix: int) -> str:
    """Return the digest of the network that an address stands for.

    A port and a zone id are cut off; an IPv4 address inside an IPv6 one (mapped, or in ``64:ff9b::/96``, RFC 6052)
    counts as itself. What is no address equals only itself.
    """
    parsed = _parse(address)
    if parsed is None:
        return digest("ip", "not an address", address)
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = _embedded(parsed) or parsed
    prefix = ipv4_prefix if parsed.version == 4 else ipv6_prefix
    return digest("ip", str(ipaddress.ip_network((parsed, prefix), strict=False)))


def _parse(address: str) -> Address | None:
    for candidate in (address, _without_port(address)):
        try:
            return ipaddress.ip_address(candidate.partition("%")[0])
        except ValueError:
            continue
    return None


def _without_port(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() else address


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


class Bindings:
    """Computes who may use a token, by the name or callable that an app or a scene has set."""

    def __init__(self, ipv4_prefix: int, ipv6_prefix: int) -> None:
        self._prefixes = (ipv4_prefix, ipv6_prefix)
        self._watch = _ProxyWatch()

    def of(self, binding: str | Callable[[], Any], request: Request, principal: Callable[[], str | None]) -> str:
        """Return the binding of the present request: a digest, empty for ``none``.

        :param principal: returns the verified principal; called only for ``user``.
        """
        if binding == "ip":
            self._watch.look(request.environ)
            return network(request.remote_addr or "", *self._prefixes)
        if binding == "none":
            return ""
        if binding == "session":
            return digest("session", self._session_id())
        if binding == "user":
            return digest("user", principal() or "")
        return digest("callable", str(_called(binding)))

    @staticmethod
    def _session_id() -> str:
        if SESSION_KEY not in session:
            session[SESSION_KEY] = new_owner()
        return str(session[SESSION_KEY])


class _ProxyWatch:
    """Warns once for an app: behind a proxy whose word nobody takes, every visitor has the proxy's address."""

    def __init__(self) -> None:
        self._warned = False

    def look(self, environ: WSGIEnvironment) -> None:
        if "HTTP_X_FORWARDED_FOR" in environ and not self._warned and _proxy_fix_seems_missing(environ):
            self._warned = True
            _logger.warning(
                "Requests come from a private address with X-Forwarded-For, which is not believed: a token is bound to "
                "the proxy's address, so that anyone behind it may use it. If the proxy is yours, wrap the app: "
                "app.wsgi_app = werkzeug.middleware.proxy_fix.ProxyFix(app.wsgi_app, x_for=1)."
            )


def _proxy_fix_seems_missing(environ: WSGIEnvironment) -> bool:
    if "werkzeug.proxy_fix.orig" in environ:
        return False
    parsed = _parse(environ.get("REMOTE_ADDR") or "")
    return parsed is None or parsed.is_private


def _called(binding: Any) -> Any:
    return binding()
