"""``flask idempotency …``: the published policy, and a check of what the app has set up. Neither asks a store."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from flask.cli import AppGroup

from .appstate import AppState
from .web import advice
from .web.look import Seen
from .web.policy_page import markdown
from .web.publish import policy_of, served


def commands(state: AppState) -> AppGroup:
    """Return the group of commands for one app."""
    group = AppGroup("idempotency", help="What Flask-Idempotency does in this app.")
    group.add_command(_policy(state))
    group.add_command(_check(state))
    return group


def _policy(state: AppState) -> click.Command:
    @click.command("policy")
    @click.option("--format", "shape", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True)
    def policy(shape: str) -> None:
        """Print what clients have to know of every protected route."""
        seen = _seen(state)
        if seen.errors:
            raise click.ClickException(" ".join(seen.errors))
        for warning in advice.hidden(state.app, seen):
            click.echo(f"warning: {warning}", err=True)
        found = policy_of(state.app, state.rules)
        text = markdown(found) if shape == "markdown" else json.dumps(found.as_json(), indent=2, ensure_ascii=False)
        click.echo(text.rstrip("\n"))

    return policy


def _check(state: AppState) -> click.Command:
    @click.command("check")
    @click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
    @click.pass_context
    def check(context: click.Context, strict: bool) -> None:
        """Look at every view and at the settings: errors, and what is probably a mistake."""
        seen = _seen(state)
        warnings = [*seen.warnings, *_warnings(state, seen)]
        for kind, messages in (("error", seen.errors), ("warning", warnings)):
            for message in messages:
                click.echo(f"{kind}: {message}")
        counted = {"protected route": _protected(state, seen), "error": len(seen.errors), "warning": len(warnings)}
        click.echo(", ".join(f"{number} {what}{'' if number == 1 else 's'}" for what, number in counted.items()))
        context.exit(1 if seen.errors or (strict and warnings) else 0)

    return check


def _seen(state: AppState) -> Seen:
    """Look at the views, without the log lines: the commands print what was found."""
    with _silent("flask_idempotent.appstate"), suppress(RuntimeError):
        state.look()
    if state.seen is None:
        raise click.ClickException("The views could not be looked at.")
    return state.seen


def _warnings(state: AppState, seen: Seen) -> Iterator[str]:
    if not state.enabled:
        yield "IDEMPOTENCY_ENABLED is False: nothing is protected."
    default = state.guards_by_name[None]
    if state.implicit_memory and any(rules.guard is default for rules in state.rules.values()):
        yield (
            "No IDEMPOTENCY_STORE is set: records lie in the memory of one process and are gone when it ends. Set a "
            "store that all processes share, for example 'redis://localhost:6379/0', or 'memory://' if this is meant."
        )
    if state.settings.store_down == "pass":
        yield "IDEMPOTENCY_STORE_DOWN is 'pass': while the store is away every duplicate runs again."
    yield from advice.hidden(state.app, seen)
    yield from advice.of_rules(state.app, seen, state.rules)


def _protected(state: AppState, seen: Seen) -> int:
    """Return the number of rules with a guarded method."""
    return sum(
        any((rule.endpoint, method) in seen.marks for method in rule.methods or ()) for rule in served(state.app)
    )


@contextmanager
def _silent(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
