"""The hold of the work that is being done now."""

from __future__ import annotations

from contextvars import ContextVar, Token

from .hold import Hold

_hold: ContextVar[Hold | None] = ContextVar("flask_idempotent_hold", default=None)


def enter_hold(hold: Hold | None) -> Token[Hold | None]:
    """Make ``hold`` the one that :data:`current_claim` speaks of; the result goes to :func:`leave_hold`."""
    return _hold.set(hold)


def leave_hold(before: Token[Hold | None]) -> None:
    """Make it the one that was before."""
    _hold.reset(before)


class CurrentClaim:
    """What a guarded view may say about its own claim. Where nothing is guarded, nothing happens."""

    def __bool__(self) -> bool:
        return _hold.get() is not None

    @property
    def fence(self) -> int:
        """A number that grows with every claim of the same token or key; 0 where nothing is guarded."""
        hold = _hold.get()
        return hold.fence if hold is not None else 0

    def restore(self) -> None:
        """Nothing happened, as when a form is shown again: the token is good again once the view has returned."""
        hold = _hold.get()
        if hold is not None:
            hold.given_back = True

    def keep(self) -> None:
        """The effect happened: should the view fail from here on, the record becomes done without an answer instead of
        being restored. Written to the store at once, so that it survives a crash; costs one round trip."""
        hold = _hold.get()
        if hold is not None:
            hold.keep()

    def extend(self) -> bool:
        """The work goes on: hold the claim for another lease from now. A heartbeat does so by itself; this is for work
        that does not let threads run.

        :returns: False if the claim was lost: its lease was over and another owner has it, or the store went back to
            before the claim.
        """
        hold = _hold.get()
        return hold.extend() if hold is not None else True


current_claim = CurrentClaim()
"""The claim under which the present code runs."""
