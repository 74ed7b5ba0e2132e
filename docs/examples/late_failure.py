"""The effect happened, then the view fails."""

from flask import Flask, redirect

from flask_idempotent import Idempotency, current_claim, idempotent

app = Flask(__name__)
Idempotency(app)
charges = []


class MailServerDown(Exception):
    pass


def charge_card():
    charges.append(1)


def send_receipt():
    raise MailServerDown


# [start-wrong]
@app.post("/pay-twice")
@idempotent
def pay_twice():
    charge_card()
    send_receipt()  # raises: the token is restored, the next click charges again
    return redirect("/paid")
    # [end-wrong]


# [start-right]
@app.post("/pay")
@idempotent
def pay():
    charge_card()
    current_claim.keep()  # from here on the token is used, whatever happens
    send_receipt()
    return redirect("/paid")
    # [end-right]


# [start-reconcile]
@app.post("/pay-by-wire")
@idempotent(restore_on_error=False)
def pay_by_wire():
    charge_card()
    send_receipt()  # raises: the record stays failed, and people look into it
    return redirect("/paid")
    # [end-reconcile]
