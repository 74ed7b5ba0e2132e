"""What one app has set up: its stores, its rules for every guarded view, its request hook."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flask import Flask, has_request_context, request

from . import signals, stores
from .config import Settings
from .core.guard import Guard
from .core.ids import new_token
from .core.keys import parse_token, token_digest
from .core.store import Store
from .web.attempt import Attempt
from .web.identity import Bindings
from .web.look import Seen, look
from .web.marks import Mark, made_by
from .web.present import present
from .web.principals import verified_principal
from .web.problems import Answers, promote_handlers
from .web.rules import Rules

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class AppState:
    """What one app has set up."""

    app: Flask
    settings: Settings
    stores: dict[str | None, Store]
    bindings: Bindings
    implicit_memory: bool
    explicit_memory: bool
    guards_by_name: dict[str | None, Guard] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: Seen | None = None
    rules: dict[tuple[str, str], Rules] = field(default_factory=dict)
    guarded: frozenset[str] | None = None
    """The endpoints that have rules; None until the look found no mistake."""
    scenes: dict[str, Mark] = field(default_factory=dict)

    @classmethod
    def make(cls, app: Flask, settings: Settings, store: Any) -> AppState:
        """Resolve the stores."""
        chosen = store if store is not None else app.config["IDEMPOTENCY_STORE"]
        found: dict[str | None, Store] = {None: _store("IDEMPOTENCY_STORE", chosen or "memory://", settings.prefix)}
        for name, value in app.config["IDEMPOTENCY_STORES"].items():
            found[name] = _store(f"IDEMPOTENCY_STORES[{name!r}]", value, settings.prefix)
        return cls(
            app=app,
            settings=settings,
            stores=found,
            bindings=Bindings(settings.ipv4_prefix, settings.ipv6_prefix),
            implicit_memory=chosen is None,
            explicit_memory=isinstance(chosen, str) and chosen.startswith("memory:"),
            guards_by_name={name: _guard(app, store, settings.prefix) for name, store in found.items()},
        )

    @property
    def enabled(self) -> bool:
        """Read at every request, so that a test suite can switch it after init."""
        return bool(self.app.config["IDEMPOTENCY_ENABLED"])

    def guards(self, method: str) -> bool:
        """Return whether requests of this method are guarded at present."""
        return method in self.settings.methods and self.enabled

    def guard(self, name: str | None) -> Guard:
        """Return the guard of a store by its name; None for the default one.

        :raises RuntimeError: the records would be kept apart in several processes.
        """
        self._one_process_only(name)
        return self.guards_by_name[name]

    def knows(self, mark: Mark) -> bool:
        """Return whether the mark was found on a registered view."""
        return mark in self.look().known

    def look(self) -> Seen:
        """Look at all views once.

        :raises RuntimeError: something must be mended first; on every request until it is.
        """
        seen = self.seen
        if seen is None:
            with self.lock:
                seen = self.seen or self._look()
        if seen.errors:
            raise RuntimeError("flask-idempotency: " + " ".join(seen.errors))
        return seen

    def _look(self) -> Seen:
        seen = look(self.app, self.settings.methods)
        seen.errors += [error for mark in seen.known if (error := self._mistake(mark)) is not None]
        if not seen.errors:
            self.scenes = seen.scenes
            self.rules = {at: self.rules_for(mark, at[0]) for at, mark in seen.marks.items()}
            promote_handlers(self.app)
            # Last, and in one step: other threads read it without the lock, and what is not in it is not guarded.
            self.guarded = frozenset(endpoint for endpoint, _ in self.rules)
        for warning in seen.warnings:
            _logger.warning("%s", warning)
        self.seen = seen
        return seen

    def _mistake(self, mark: Mark) -> str | None:
        if mark.store is not None and mark.store not in self.stores:
            return f"{mark.where} names store {mark.store!r}, which IDEMPOTENCY_STORES does not have."
        own_binding = mark.binding is not None and mark.binding != self.settings.binding
        if mark.scene is None and "token" in mark.sources and (own_binding or mark.store is not None):
            return (
                f"{mark.where} sets binding= or store= without scene=: a token is issued before it is known which view "
                "it goes to. Give the view a scene, and name it in the form: {{ idempotency_token('SCENE') }}."
            )
        return None

    def rules_for(self, mark: Mark, endpoint: str) -> Rules:
        """Complete a mark by the app's settings."""
        settings = self.settings
        policy = mark.on_duplicate or settings.on_duplicate
        key_header = (mark.name if "param" not in mark.sources else None) or settings.key_header
        return Rules(
            guard=self.guards_by_name[mark.store],
            bindings=self.bindings,
            answers=self.answers(mark.message),
            scene=mark.scene or endpoint,
            scene_given=mark.scene is not None,
            outermost=made_by(self.app.view_functions.get(endpoint)) is mark,
            sources=mark.sources,
            key_header=key_header,
            key_environ=_in_environ(key_header),
            key_param=mark.name or "idempotency_key",
            key=mark.key,
            key_ttl=mark.ttl or settings.result_ttl,
            required=mark.required,
            wait=settings.wait if mark.wait is None else mark.wait,
            lock=mark.lock,
            interval=mark.interval,
            description=mark.description,
            binding=mark.binding or settings.binding,
            token_ttl=settings.token_ttl,
            result_ttl=mark.ttl or settings.token_ttl,
            lease=mark.lease or settings.lease,
            restore_on_error=settings.restore_on_error if mark.restore_on_error is None else mark.restore_on_error,
            consume=mark.consume,
            on_duplicate="reject" if mark.consume and policy not in ("reject", "ignore") else policy,
            fingerprint=mark.fingerprint,
            ignore=mark.ignore,
            principal=mark.principal or settings.principal,
            final=mark.final,
            token_header=settings.token_header,
            token_environ=_in_environ(settings.token_header),
            token_field=settings.token_field,
            token_locations=settings.token_locations,
            csrf_field=self.app.config.get("WTF_CSRF_FIELD_NAME", "csrf_token"),
            store_down=settings.store_down,
            max_result=settings.max_result,
            max_body=settings.max_body,
        )

    def rules_of_hidden(self, mark: Mark, endpoint: str) -> Rules:
        """Complete a mark that the look could not see.

        :raises RuntimeError: it would have found a mistake.
        """
        if (mistake := self._mistake(mark)) is not None:
            raise RuntimeError(f"flask-idempotency: {mistake}")
        return self.rules_for(mark, endpoint)

    def answers(self, message: str | None) -> Answers:
        """Return how refusals look."""
        settings = self.settings
        return Answers(
            settings.error_format, settings.duplicate_status, message or settings.message, settings.policy_url
        )

    def hook(self) -> Callable[[], None]:
        """Return what runs before every request: look once, then claim what can be claimed. It answers nothing.

        A plain function, of which Flask finds out soonest that it is not async.
        """
        config = self.app.config

        def claim_early() -> None:
            guarded = self.guarded
            if guarded is None:
                if not config["IDEMPOTENCY_ENABLED"]:
                    return
                self.look()
                guarded = self.guarded or frozenset()
            request = present()
            rule = request.url_rule
            # No rule: 404, 405, or the redirect to an address with a slash.
            if rule is None or rule.endpoint not in guarded or not config["IDEMPOTENCY_ENABLED"]:
                return
            rules = self.rules.get((rule.endpoint, request.method))
            if rules is None or Attempt.of(request) is not None:
                return
            self._one_process_only(None)
            attempt = Attempt(rules, request)
            if rules.early:
                attempt.claim()

        return claim_early

    def issue(self, scene: str, ttl: float) -> str:
        """Issue a token for the present request.

        :raises StoreUnavailable: it could not be recorded.
        """
        mark = self.scenes.get(scene) if scene else None
        token = new_token()
        principal = (mark.principal if mark is not None else None) or self.settings.principal
        binding = self.bindings.of(
            (mark.binding if mark is not None else None) or self.settings.binding,
            present(),
            lambda: verified_principal(principal),
        )
        guard = self.guard(mark.store if mark is not None else None)
        guard.issue(token_digest(parse_token(token) or ""), binding=binding, scene=scene, ttl=ttl)
        return token

    def issue_for_script(self, scene: str) -> tuple[str, float]:
        """Issue a token for the token endpoint; an unrecorded one while switched off or for HEAD."""
        if not self.enabled or request.method == "HEAD":
            return new_token(), self.settings.token_ttl
        return self.issue(scene, self.settings.token_ttl), self.settings.token_ttl

    def _one_process_only(self, name: str | None) -> None:
        """Memory is right for one process. The server's word on that is a hint only, so it is all that is asked."""
        if name is not None or not (self.implicit_memory or self.explicit_memory) or not has_request_context():
            return
        if not request.environ.get("wsgi.multiprocess"):
            return
        if self.implicit_memory:
            raise RuntimeError(
                "No IDEMPOTENCY_STORE is set and the server runs several processes, each of which would keep its "
                "tokens to itself. Set IDEMPOTENCY_STORE, for example to 'redis://localhost:6379/0'."
            )
        self.explicit_memory = False  # warn once
        _logger.warning(
            "IDEMPOTENCY_STORE is memory:// and the server runs several processes: a duplicate that reaches another "
            "process runs again. Use a store that they share, for example redis://."
        )


def _in_environ(header: str) -> str:
    """Return a header's key in the WSGI environment (PEP 3333)."""
    return "HTTP_" + header.upper().replace("-", "_")


def _store(name: str, value: Any, prefix: str) -> Store:
    try:
        return (stores.from_url if isinstance(value, str) else stores.from_object)(value, prefix=prefix)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _guard(app: Flask, store: Store, prefix: str) -> Guard:
    return Guard(store, prefix=prefix, listener=partial(signals.send, app))
