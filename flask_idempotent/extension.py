"""``Idempotency``: init_app, the request hook, the template helper. All state lies in ``app.extensions``."""

from __future__ import annotations

import logging
from typing import Any, Final

from flask import Flask, current_app, has_request_context, message_flashed, request

from . import checks, cli
from .appstate import AppState
from .completing import answers
from .config import Settings
from .core.errors import StoreUnavailable
from .core.guard import Guard
from .core.ids import new_token
from .core.keys import SCENE
from .web.attempt import Attempt, abandon
from .web.cache import note_token
from .web.lastword import have_last_word
from .web.look import expect
from .web.markup import TokenInput
from .web.present import present
from .web.views import token_view

EXTENSION: Final = "idempotency"
HELPER: Final = "idempotency_token"
_STORE_DOWN: Final = "_idempotency_store_down"

_logger = logging.getLogger(__name__)


class Idempotency:
    """Makes an unsafe request safe to send twice.

    One object serves several apps; it keeps nothing of theirs.

    :param app: passed to :meth:`init_app` if given.
    :param store: the same.
    """

    def __init__(self, app: Flask | None = None, *, store: Any = None) -> None:
        if app is not None:
            self.init_app(app, store=store)

    def init_app(self, app: Flask, *, store: Any = None) -> None:
        """Set an app up. Reads its ``IDEMPOTENCY_*`` keys once; connects to nothing.

        :param store: a URL, a redis-py client or a :class:`~flask_idempotent.core.store.Store`; goes before
            ``IDEMPOTENCY_STORE``. With neither, records are kept in the memory of the one process.
        :raises ValueError: a key's value makes no sense; the message names the key.
        :raises RuntimeError: the app was set up before.
        """
        if EXTENSION in app.extensions:
            raise RuntimeError("This app has an Idempotency already: call init_app once for each app.")
        state = AppState.make(app, Settings.read(app.config), store)
        app.extensions[EXTENSION] = state
        expect(app)
        app.before_request(state.hook())
        app.teardown_request(abandon)
        message_flashed.connect(_note_flash, app)
        _add_helper(app)
        app.cli.add_command(cli.commands(state))
        if state.settings.token_url is not None:
            app.add_url_rule(
                state.settings.token_url,
                endpoint=HELPER,
                view_func=token_view(
                    state.issue_for_script,
                    answers(state.settings, None),
                    state.settings.token_field,
                    state.settings.token_header,
                ),
            )

    def token(self, scene: str | None = None, *, ttl: Any = None) -> str:
        """Issue a token, as ``{{ idempotency_token() }}`` does, and return it bare.

        :param scene: the operation that it is for; any if left out.
        :param ttl: its life in seconds.
        :raises ValueError: ``ttl`` is no positive time.
        :raises RuntimeError: the app is misconfigured.
        """
        return idempotency_token(scene, ttl=ttl).value

    @property
    def guard(self) -> Guard:
        """The present app's guard, in its default store."""
        return state_of(current_app).guard(None)


def state_of(app: Flask) -> AppState:
    """Return what an app has set up.

    :raises RuntimeError: the app was not set up.
    """
    try:
        state: AppState = app.extensions[EXTENSION]
    except KeyError:
        raise RuntimeError(
            f"The app {app.import_name!r} has no Idempotency: call Idempotency().init_app(app) first."
        ) from None
    return state


def idempotency_token(scene: str | None = None, *, ttl: Any = None) -> TokenInput:
    """Issue a token and return the hidden input that carries it; the template global of the same name.

    Never fails a page: if the store cannot be reached, the token is one that was not recorded, and the form is refused
    when it is sent.

    :param scene: the operation that the token is for; any if left out.
    :param ttl: its life in seconds; ``IDEMPOTENCY_TOKEN_TTL`` if left out.
    :raises ValueError: ``ttl`` is no positive time.
    :raises RuntimeError: the app is misconfigured.
    """
    state = state_of(current_app)
    life = state.settings.token_ttl if ttl is None else checks.seconds("ttl=", ttl)
    return TokenInput.of(state.settings.token_field, _recorded_if_possible(state, scene or "", life))


def _recorded_if_possible(state: AppState, scene: str, ttl: float) -> str:
    if not state.enabled or not has_request_context():
        return new_token()
    if scene and not SCENE.fullmatch(scene):
        _logger.error("The scene %.80r in a template is malformed; its token was not recorded.", scene)
        return new_token()
    state.look()
    note_token()
    have_last_word()
    if request.method == "HEAD" or getattr(present(), _STORE_DOWN, False):
        return new_token()
    try:
        return state.issue(scene, ttl)
    except StoreUnavailable:
        setattr(present(), _STORE_DOWN, True)
        return new_token()


def _note_flash(_: Flask, *, message: Any, category: str, **__: Any) -> None:
    attempt = Attempt.of(present()) if has_request_context() else None
    if attempt is not None and attempt.entered:
        attempt.flashes.append((category, message))


def _add_helper(app: Flask) -> None:
    """Add the template global without building ``app.jinja_env``: delimiters set after init_app must still count."""
    if "jinja_env" in app.__dict__:
        app.jinja_env.globals[HELPER] = idempotency_token
        return
    create = app.create_jinja_environment

    def create_with_helper() -> Any:
        environment = create()
        environment.globals[HELPER] = idempotency_token
        return environment

    app.create_jinja_environment = create_with_helper  # type: ignore[method-assign]  # no other place is as late
