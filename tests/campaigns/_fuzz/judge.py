"""What is wrong with an answer, and with the ledger in the end."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from flask_idempotent.core.errors import IdempotencyError
from tests.campaigns._fuzz.plans import CALLBACK, FORMS, ORDERS, TOKEN, Plan
from tests.campaigns._fuzz.wire import Answer
from tests.helpers import REPLAYED

STATUSES = {kind.reason: kind.status for kind in IdempotencyError.__subclasses__()}
for _kind in list(IdempotencyError.__subclasses__()):
    STATUSES |= {kind.reason: kind.status for kind in _kind.__subclasses__()}
PROMISE_A_TIME = ("in_progress", "locked", "too_soon", "store_unavailable")
ON_PURPOSE = "of the shop's card terminal, which fails at a first payment on purpose"
_NUMBER = re.compile(rb'"(?:number|booked_as)":(\d+)|order number (\d+)')


@dataclass
class Judge:
    """Remembers which operation was asked for, and under which number the shop did it."""

    complaints: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    asked: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    done: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def asks(self, plan: Plan, token: bytes) -> str:
        """Note what a request may do once; return its name, "" if it names nothing."""
        who = repr(sorted(value for name, value in plan.headers if name == b"Authorization"))
        if plan.path in FORMS:
            carried = TOKEN in b"".join((plan.body, plan.target, *(value for _, value in plan.headers)))
            operation = token.decode() if carried and token else ""
            kind = "forms"
        elif plan.path == ORDERS:
            keys = repr([value for name, value in plan.headers if name == b"Idempotency-Key"])
            operation, kind = f"{plan.operation or keys} {who}", "api"
        elif plan.path == CALLBACK:
            operation, kind = f"{plan.operation or plan.body!r} {who}", "callback"
        else:
            return ""
        if operation:
            self.asked[kind].add(operation)
        return operation

    def answered(self, plan: Plan, operation: str, answer: Answer | None) -> None:
        """Judge one answer."""
        if answer is None:
            self.seen["closed without an answer"] += 1
            if plan.framing in ("length", "chunked"):
                self._complain(plan, "no answer")
            return
        problem, on_purpose = answer.problem, self._terminal_is_down(plan, answer)
        manner = problem["code"] if problem else ON_PURPOSE if on_purpose else self._manner(answer)
        self.seen[f"{answer.status} {manner}".strip()] += 1
        if answer.status >= 500 and not on_purpose:
            self._complain(plan, f"{answer.status} {answer.body[:200]!r}")
        if b"Traceback" in answer.body:
            self._complain(plan, "shows a traceback")
        if problem is not None:
            self._refused(plan, answer, str(problem["code"]), problem["status"])
        number = self._number(plan, answer)
        if operation and number is not None:
            self.done[operation].add(number)
            if len(self.done[operation]) > 1:
                self._complain(plan, f"{operation} was done as {sorted(self.done[operation])}")

    def ledger(self, rows: Counter[str]) -> None:
        """Compare the rows that there are with what was asked for."""
        forms = sum(rows[form] for form in {form for form, _ in FORMS.values()})
        counted = {"forms": forms, "api": rows["api"], "callback": rows["callback"]}
        for kind, effects in counted.items():
            self.seen[f"effects: {kind}"] = effects
            if effects > len(self.asked[kind]):
                self.complaints.append(f"{effects} effects for {len(self.asked[kind])} distinct operations: {kind}")
            if not effects:
                self.complaints.append(f"nothing was ever done: {kind}")
        told = len(set().union(*self.done.values()))
        if told > sum(rows.values()):
            self.complaints.append(f"{told} numbers were told, and {sum(rows.values())} rows are there")

    def _refused(self, plan: Plan, answer: Answer, reason: str, status: int) -> None:
        if STATUSES.get(reason) != answer.status or status != answer.status:
            self._complain(plan, f"{answer.status} {reason}, which is not documented")
        if (reason in PROMISE_A_TIME) != ("Retry-After" in answer.headers):
            self._complain(plan, f"{reason}: Retry-After is {answer.headers.get('Retry-After')}")
        if REPLAYED in answer.headers:
            self._complain(plan, f"{reason} is marked as a replay")

    def _terminal_is_down(self, plan: Plan, answer: Answer) -> bool:
        return plan.path == "/payments" and answer.status == 503 and b"The card terminal" in answer.body

    @staticmethod
    def _manner(answer: Answer) -> str:
        return "replayed" if answer.headers.get(REPLAYED) == "true" else ""

    @staticmethod
    def _number(plan: Plan, answer: Answer) -> int | None:
        """The number of the order that an answer speaks of."""
        if plan.method != "POST" or answer.status not in (200, 201, 303):
            return None
        at = re.fullmatch(r"/orders/(\d+)", answer.headers.get("Location", ""))
        found = at or _NUMBER.search(answer.body)
        return int(next(filter(None, found.groups()))) if found else None

    def _complain(self, plan: Plan, wrong: str) -> None:
        self.complaints.append(f"{wrong}: {plan}")
