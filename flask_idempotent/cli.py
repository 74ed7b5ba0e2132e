"""``flask idempotency …``: the published policy, and a check of what the app has set up. Neither asks a store."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import click
from flask.cli import AppGroup

from .appstate import AppState
from .web import advice
from .web.look import Seen
from .web.marks import Mark
from .web.policy_page import markdown
from .web.publish import policy_of, served
from .web.rules import Rules


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
        found = _Found.of(state)
        if found.errors:
            raise click.ClickException(" ".join(found.errors))
        for warning in found.hidden:
            click.echo(f"warning: {warning}", err=True)
        published = policy_of(state.app, found.rules)
        if shape == "json":
            click.echo(json.dumps(published.as_json(), indent=2, ensure_ascii=False))
        else:
            click.echo(markdown(published), nl=False)

    return policy


def _check(state: AppState) -> click.Command:
    @click.command("check")
    @click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
    @click.pass_context
    def check(context: click.Context, strict: bool) -> None:
        """Look at every view and at the settings: errors, and what is probably a mistake."""
        found = _Found.of(state)
        warnings = [*found.warnings, *_of_settings(state, found), *found.hidden]
        warnings += advice.of_views(state.app, found.marks, found.rules)
        for kind, messages in (("error", found.errors), ("warning", warnings)):
            for message in messages:
                click.echo(f"{kind}: {message}")
        counted = {"protected route": found.routes(state), "error": len(found.errors), "warning": len(warnings)}
        click.echo(", ".join(f"{number} {what}{'' if number == 1 else 's'}" for what, number in counted.items()))
        context.exit(1 if found.errors or (strict and warnings) else 0)

    return check


@dataclass(slots=True)
class _Found:
    """What the look found, and what it could not see.

    :param hidden: a warning for each mark of the latter sort.
    :param rules: of all views by endpoint and method; empty while there are errors.
    """

    marks: dict[tuple[str, str], Mark]
    errors: list[str]
    warnings: list[str]
    rules: dict[tuple[str, str], Rules]
    hidden: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, state: AppState) -> _Found:
        seen = _seen(state)
        found = cls(dict(seen.marks), list(seen.errors), list(seen.warnings), dict(state.rules))
        for at, mark in advice.hidden(state.app, seen).items():
            if at[1] in state.settings.methods:
                found._add(state, at, mark)
        return found

    def _add(self, state: AppState, at: tuple[str, str], mark: Mark) -> None:
        self.marks[at] = mark
        _once(
            self.hidden,
            f"A decorator hides that {mark.where} is marked @idempotent, at endpoint {at[0]!r}: it claims "
            "late, and a token for its scene is issued without knowing it. Use functools.wraps in that decorator.",
        )
        try:
            self.rules[at] = state.rules_of_hidden(mark, at[0])
        except RuntimeError as error:
            _once(self.errors, str(error).removeprefix("flask-idempotency: "))

    def routes(self, state: AppState) -> int:
        """Return the number of rules with a guarded method."""
        rules = served(state.app)
        return sum(any((rule.endpoint, method) in self.marks for method in rule.methods or ()) for rule in rules)


def _seen(state: AppState) -> Seen:
    """Look at the views, without the log lines: the commands print what was found."""
    with _silent("flask_idempotent.appstate"), suppress(RuntimeError):
        state.look()
    if state.seen is None:
        raise click.ClickException("The views could not be looked at.")
    return state.seen


def _of_settings(state: AppState, found: _Found) -> Iterator[str]:
    if not state.enabled:
        yield "IDEMPOTENCY_ENABLED is False: nothing is protected."
    default = state.guards_by_name[None]
    if state.one_process.unset and any(rules.guard is default for rules in found.rules.values()):
        yield (
            "No IDEMPOTENCY_STORE is set: records lie in the memory of one process and are gone when it ends. Set a "
            "store that all processes share, for example 'redis://localhost:6379/0', or 'memory://' if this is meant."
        )
    if state.settings.store_down == "pass":
        yield "IDEMPOTENCY_STORE_DOWN is 'pass': while the store is away every duplicate runs again."


def _once(messages: list[str], message: str) -> None:
    if message not in messages:
        messages.append(message)


@contextmanager
def _silent(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
