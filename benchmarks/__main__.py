"""``./dev bench``: in one process, on a real Valkey, every candidate in turn in every round.

Absolute times are the machine's; what is reported is the median, its spread over the rounds, and the ratio to what
matters: new to the guard made by hand, replay and consume to a bare view with one script, an unmarked route to a bare
one. Ratios are taken round by round, so that a machine whose speed drifts does not change them.
"""

from __future__ import annotations

import gc
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from flask import Flask

from tests.servers import RedisServer

from . import apps, parts, peers

BODY = json.dumps({"order": "A-4711", "customer": "c-1029", "amount": 1299, "note": "x" * 110}).encode()


@dataclass
class Candidate:
    """One way to guard the view, and what of it is timed."""

    name: str
    app: Flask
    replay: bool = False
    against: str = "bare"
    rounds: list[float] = field(default_factory=list)

    def tokens(self, count: int) -> list[str]:
        """Return what to send."""
        made = apps.tokens(self.app, count)
        if self.replay:
            for token in made:
                call(self.app, token)
        return made


def environ_of(token: str) -> dict[str, Any]:
    """Return the WSGI environment of one request."""
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/pay",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost",
        "HTTP_IDEMPOTENCY_TOKEN": token,
        "HTTP_IDEMPOTENCY_KEY": token,
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(BODY)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(BODY),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def call(app: Flask, token: str) -> str:
    """Send one request without a socket; return its status line."""
    seen: list[str] = []
    answer = app(environ_of(token), lambda status, headers, info=None: seen.append(status) or (lambda data: None))
    b"".join(answer)
    if hasattr(answer, "close"):
        answer.close()
    return seen[0]


def candidates(url: str, with_peers: bool) -> list[Candidate]:
    """Return all that is timed, in the order in which a round takes them."""
    ours = apps.ours(url)
    found = [
        Candidate("bare", apps.bare(url)),
        Candidate("unmarked route", apps.unmarked(url)),
        Candidate("one EVALSHA by hand", apps.one_evalsha(url)),
        Candidate("guarded by hand", apps.by_hand(url)),
        Candidate("ours, new", ours, against="guarded by hand"),
        Candidate("ours, replay", ours, replay=True, against="one EVALSHA by hand"),
        Candidate("ours, consume", apps.ours(url, consume=True), against="one EVALSHA by hand"),
    ]
    if with_peers:
        for peer in (peers.exactly_once, peers.powertools, peers.idemkit):
            app = peer(url)
            found.append(Candidate(f"{peer.__name__}, new", app, against="guarded by hand"))
            found.append(Candidate(f"{peer.__name__}, replay", app, replay=True, against="one EVALSHA by hand"))
    return found


def measure(found: list[Candidate], rounds: int, requests: int, tell: Callable[[str], None]) -> None:
    """Time every candidate once a round; the first round warms up and does not count."""
    for number in range(rounds + 1):
        for candidate in found:
            sent = candidate.tokens(requests)
            gc.collect()
            started = time.perf_counter()
            for token in sent:
                status = call(candidate.app, token)
            spent = (time.perf_counter() - started) / requests * 1e6
            if not status.startswith("201"):
                raise RuntimeError(f"{candidate.name} answered {status}")
            if number:
                candidate.rounds.append(spent)
        tell(f"round {number} of {rounds}")


def report(found: list[Candidate]) -> list[dict[str, Any]]:
    """Return a row for each candidate: microseconds, and the ratio to what it is held against."""
    by_name = {candidate.name: candidate for candidate in found}
    rows = []
    for candidate in found:
        base = by_name[candidate.against].rounds
        ratios = sorted(mine / other for mine, other in zip(candidate.rounds, base, strict=True))
        extra = sorted(mine - other for mine, other in zip(candidate.rounds, base, strict=True))
        times = sorted(candidate.rounds)
        rows.append(
            {
                "name": candidate.name,
                "median_us": round(statistics.median(times), 1),
                "low_us": round(times[len(times) // 10], 1),
                "high_us": round(times[-1 - len(times) // 10], 1),
                "against": candidate.against,
                "ratio": round(statistics.median(ratios), 3),
                "ratio_low": round(ratios[len(ratios) // 10], 3),
                "ratio_high": round(ratios[-1 - len(ratios) // 10], 3),
                "extra_us": round(statistics.median(extra), 1),
            }
        )
    return rows


def show_parts(server: RedisServer) -> None:
    """Print what each part of a protected request takes."""
    app = apps.ours(server.url)
    token = apps.tokens(app, 1)[0]
    with server.client() as client:
        for name, microseconds in parts.parts(app, lambda: environ_of(token), client):
            click.echo(f"{name:44}{microseconds:7.1f} µs")


@click.command()
@click.option("--rounds", default=30, show_default=True, help="Rounds that count.")
@click.option("--requests", default=200, show_default=True, help="Requests of each candidate in a round.")
@click.option("--peers/--no-peers", "with_peers", default=True, help="Run the peers, too.")
@click.option("--parts", "only_parts", is_flag=True, help="Only say where a protected request's time goes.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=Path("benchmarks/last.json"))
def main(rounds: int, requests: int, with_peers: bool, only_parts: bool, target: Path) -> None:
    """Time the guarded view."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer("valkey91", Path(folder)).start()
        try:
            if only_parts:
                show_parts(server)
                return
            found = candidates(server.url, with_peers)
            measure(found, rounds, requests, lambda line: click.echo(f"\r{line}", nl=False, err=True))
        finally:
            server.stop()
    click.echo("", err=True)
    rows = report(found)
    click.echo(f"{'':24}{'µs':>8}{'10 to 90 %':>18}   {'ratio':>6}{'10 to 90 %':>16}{'extra µs':>10}  against")
    for row in rows:
        click.echo(
            f"{row['name']:24}{row['median_us']:8.0f}{row['low_us']:9.0f} to{row['high_us']:6.0f}   {row['ratio']:6.2f}"
            f"{row['ratio_low']:8.2f} to {row['ratio_high']:4.2f}{row['extra_us']:10.1f}  {row['against']}"
        )
    target.write_text(json.dumps({"rounds": rounds, "requests": requests, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
