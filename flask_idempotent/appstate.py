"""What one app has set up: its stores, its rules for every guarded view, its request hook."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flask import Flask, request

from . import signals, stores
from .completing import completed
from .config import Settings
from .core.guard import Guard
from .core.ids import new_token
from .core.keys import parse_token, token_digest
from .core.store import Store
from .processes import OneProcess
from .web.attempt import Attempt
from .web.identity import Bindings
from .web.look import Seen, look
from .web.marks import Mark, made_by
from .web.present import present
from .web.principals import verified_principal
from .web.problems import promote_handlers
from .web.rules import Rules

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class AppState:
    """What one app has set up."""

    app: Flask
    settings: Settings
    stores: dict[str | None, Store]
    bindings: Bindings
    one_process: OneProcess
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
            one_process=OneProcess(chosen),
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
        if name is None:
            self.one_process.check()
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
        return completed(
            mark,
            self.settings,
            endpoint=endpoint,
            guard=self.guards_by_name[mark.store],
            bindings=self.bindings,
            outermost=made_by(self.app.view_functions.get(endpoint)) is mark,
            csrf_field=self.app.config.get("WTF_CSRF_FIELD_NAME", "csrf_token"),
        )

    def rules_of_hidden(self, mark: Mark, endpoint: str) -> Rules:
        """Complete a mark that the look could not see.

        :raises RuntimeError: it would have found a mistake.
        """
        if (mistake := self._mistake(mark)) is not None:
            raise RuntimeError(f"flask-idempotency: {mistake}")
        return self.rules_for(mark, endpoint)

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
            self.one_process.check()
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


def _store(name: str, value: Any, prefix: str) -> Store:
    try:
        return (stores.from_url if isinstance(value, str) else stores.from_object)(value, prefix=prefix)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _guard(app: Flask, store: Store, prefix: str) -> Guard:
    return Guard(store, prefix=prefix, listener=partial(signals.send, app))
