"""The orders that were really made: every effect of every form is one row here."""

from __future__ import annotations

import time

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import delete, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

FORMS = {
    "order": "Order form",
    "twin": "Unprotected twin",
    "pay": "Card payment",
    "coffee": "Coffee form",
    "cake": "Cake form",
    "script": "Form sent by script",
    "gift": "Gift card",
    "tip": "Tip jar",
    "api": "JSON API",
    "callback": "Payment callback",
}
"""What people see for the name of a form."""


class Base(DeclarativeBase):
    """What the shop's tables have in common."""


db = SQLAlchemy(model_class=Base)


class Order(db.Model):  # type: ignore[name-defined, misc]
    """One order, made once."""

    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - a number is never used again, after a reset either

    id: Mapped[int] = mapped_column(primary_key=True)
    form: Mapped[str]
    what: Mapped[str]
    at: Mapped[str] = mapped_column(default=lambda: time.strftime("%H:%M:%S"))


def place_order(form: str, what: str) -> Order:
    """Write one order and commit it.

    :param form: the form that asked for it, one of :data:`FORMS`.
    """
    order = Order(form=form, what=what)
    db.session.add(order)
    db.session.commit()
    return order


def orders() -> list[Order]:
    """All orders, the newest first."""
    return list(db.session.scalars(select(Order).order_by(Order.id.desc())))


def tally() -> dict[str, int]:
    """How many orders each form has made, for the forms that have made any."""
    rows = db.session.execute(select(Order.form, func.count()).group_by(Order.form).order_by(func.min(Order.id)))
    return {form: count for form, count in rows}  # noqa: C416 - typed rows are not pairs


def forget_orders() -> None:
    """Empty the list, for the next experiment."""
    db.session.execute(delete(Order))
    db.session.commit()
