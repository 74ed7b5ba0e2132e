"""How a duplicate is answered: replay, reject, ignore, or as a callable says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flask import Response, current_app, flash, jsonify, make_response, session
from werkzeug.exceptions import HTTPException

from ..core.errors import Duplicate, IdempotencyError, InProgress, RecordInvalid, ResponseUnavailable
from . import snapshot
from .crossorigin import note_replay
from .lastword import have_last_word
from .present import the_app
from .principals import warn_of_guess
from .problems import as_http
from .rules import Rules

NAMED: Final = ("replay", "reject", "ignore")


def answer(
    error: Duplicate | InProgress, rules: Rules, viewer: Callable[[], str], bare: bool
) -> Response | HTTPException:
    """Return what answers a duplicate, or the refusal that is to be raised.

    :param error: the refusal as the guard raised it, with the record.
    :param viewer: tells who is asking; called only if there is an answer to show.
    :param bare: whether the request carries no cookie.
    """
    policy = rules.on_duplicate
    if policy == "ignore":
        return _silent_success(rules)
    judged = _judged(error, policy, viewer, bare)
    if policy == "replay" and isinstance(judged, Duplicate) and judged.replayer is not None:
        replay: Response = judged.replay()
        return replay
    refusal = as_http(judged, rules.answers)
    if isinstance(refusal, RecordInvalid) or policy in ("reject", "replay"):
        return refusal
    restyle: Any = policy
    return make_response(current_app.ensure_sync(restyle)(refusal))


def _judged(error: Duplicate | InProgress, policy: Any, viewer: Callable[[], str], bare: bool) -> IdempotencyError:
    """Say more exactly what stands in the way, and let ``replay()`` show what may be shown."""
    record = error.record
    error.replayer = None
    if isinstance(error, InProgress) or policy == "reject" or record is None or record.consumed:
        return error
    if record.result is None:
        return ResponseUnavailable(state=error.state, record=record)
    kept = snapshot.unpack(record.result)
    if kept is None:
        return RecordInvalid()
    if _may_see(kept, bool(record.issued_until), viewer, bare):
        error.replayer = lambda: _response(kept)
    return error


def _may_see(kept: snapshot.Snapshot, token: bool, viewer: Callable[[], str], bare: bool) -> bool:
    """An answer recorded under a name is shown to the same. One recorded under nobody's is shown to whoever holds the
    token, which is the secret; a client-made key is none: there a cookie may mean somebody whom we do not know."""
    if kept.viewer:
        return kept.viewer == viewer()
    if token:
        return True
    if kept.open and bare:
        return viewer() == ""
    warn_of_guess(the_app())
    return False


def _response(kept: snapshot.Snapshot) -> Response:
    _flash_again(kept.flashes)
    have_last_word()
    return note_replay(snapshot.to_response(kept, the_app().response_class))


def _flash_again(flashes: tuple[tuple[str, str], ...]) -> None:
    """The browser dropped the first answer, and with it the session cookie that held the view's messages."""
    if not flashes:
        return
    held = [tuple(message) for message in session.get("_flashes", ())]
    for category, message in flashes:
        if (category, message) not in held:
            flash(message, category)


def _silent_success(rules: Rules) -> Response:
    if rules.answers.format == "envelope":
        return jsonify(code=200, message="success", data=None)
    return current_app.response_class(status=204)
