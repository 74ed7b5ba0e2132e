"""What a mark leaves open is as the app has set it."""

from __future__ import annotations

from .config import Settings
from .core.guard import Guard
from .web.identity import Bindings
from .web.marks import Mark
from .web.problems import Answers
from .web.rules import Rules


def completed(
    mark: Mark,
    settings: Settings,
    *,
    endpoint: str,
    guard: Guard,
    bindings: Bindings,
    outermost: bool,
    csrf_field: str,
) -> Rules:
    """Return the rules of a marked view.

    :param outermost: whether the mark is the last decorator, so that nothing can change what it returns.
    :param csrf_field: a field that is another in each copy of a form.
    """
    policy = mark.on_duplicate or settings.on_duplicate
    key_header = (mark.name if "param" not in mark.sources else None) or settings.key_header
    return Rules(
        guard=guard,
        bindings=bindings,
        answers=answers(settings, mark.message),
        scene=mark.scene or endpoint,
        scene_given=mark.scene is not None,
        outermost=outermost,
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
        csrf_field=csrf_field,
        store_down=settings.store_down,
        max_result=settings.max_result,
        max_body=settings.max_body,
    )


def answers(settings: Settings, message: str | None) -> Answers:
    """Return how refusals look."""
    return Answers(settings.error_format, settings.duplicate_status, message or settings.message, settings.policy_url)


def _in_environ(header: str) -> str:
    """Return a header's key in the WSGI environment (PEP 3333)."""
    return "HTTP_" + header.upper().replace("-", "_")
