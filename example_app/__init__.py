"""A small shop that shows what Flask-Idempotency does. ``./dev demo`` opens it."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from flask import Flask, Response, request

from flask_idempotent import Idempotency

from .api import api
from .models import FORMS, db, orders, tally
from .views import shop

DEFAULTS = {
    "SQLALCHEMY_DATABASE_URI": "sqlite:///shop.sqlite3",  # in the temporary folder
    "SHOP_DELAY": 2.0,  # seconds that a slow order takes
}

# [start-setup]
idempotency = Idempotency()


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Make the shop, with an empty SQLite file in a temporary folder unless a database is named.

    :param config: settings; ``IDEMPOTENCY_STORE`` names the store of the tokens. ``FLASK_…`` in the environment sets
        the same, a little more weakly.
    """
    app = Flask(__name__, instance_path=_temporary_folder())
    app.config.from_mapping(DEFAULTS, SECRET_KEY=secrets.token_hex())
    app.config.from_prefixed_env()
    app.config.from_mapping(config or {})
    db.init_app(app)
    idempotency.init_app(app)
    app.register_blueprint(shop)
    app.register_blueprint(api)
    # [end-setup]
    app.context_processor(lambda: {"forms": FORMS, "orders": orders, "tally": tally})
    app.after_request(_cache_experiments)
    with app.app_context():
        db.create_all()
    return app


def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="example-shop-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _cache_experiments(response: Response) -> Response:
    """``?cache=no-store`` and ``?cache=vary`` on any page: to compare what Back does with what it does by default."""
    experiment = request.args.get("cache")
    if experiment == "no-store":
        response.cache_control.no_store = True
    elif experiment == "vary":
        response.vary.add("Cookie")  # as a page that reads the session is sent
    return response
