"""The token endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Response, jsonify, request

from ..core.errors import SceneInvalid, StoreUnavailable
from ..core.keys import SCENE
from .cache import note_token
from .lastword import have_last_word
from .problems import Answers, as_http

Issue = Callable[[str], tuple[str, float]]
"""Takes a scene, empty for none; returns a token and its life in seconds."""


def token_view(issue: Issue, answers: Answers, field: str, header: str) -> Callable[[], Response]:
    """Return the view that answers with a fresh token.

    The JSON has ``token``, ``scene`` (null for none), ``field``, ``header`` and ``expires_in`` (seconds); in the
    envelope format they are its ``data``. ``?scene=`` names the operation that the token is for.
    """

    def idempotency_token() -> Response:
        scenes = request.args.getlist("scene")
        scene = scenes[0] if scenes else ""
        if len(scenes) > 1 or (scene and not SCENE.fullmatch(scene)):
            raise as_http(SceneInvalid(), answers)
        note_token()
        have_last_word()
        try:
            token, expires_in = issue(scene)
        except StoreUnavailable as error:
            raise as_http(error, answers) from error
        data: dict[str, Any] = {
            "token": token,
            "scene": scene or None,
            "field": field,
            "header": header,
            "expires_in": int(expires_in) if expires_in == int(expires_in) else expires_in,
        }
        envelope = answers.format == "envelope"
        response = jsonify({"code": 200, "message": "success", "data": data} if envelope else data)
        response.headers["Cache-Control"] = "no-store"
        return response

    return idempotency_token
