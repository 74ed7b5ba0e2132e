"""Settings for the batch jobs of an admin page, with an audit."""

from flask import Flask, g, request

from flask_idempotent import Idempotency, idempotent, signals

app = Flask(__name__)
Idempotency(app)
paid, audit = [], []


# [start-settings]
@app.before_request
def who():
    g.admin = request.headers.get("X-Admin")  # here your login


@app.post("/payroll/<month>")
@idempotent(
    key="month",
    scene="payroll.run",
    principal=lambda: "payroll",  # one run for the company, not one for each admin
    lock="'payroll'",
    ttl=40 * 24 * 3600,
    lease=900,
    restore_on_error=False,
    on_duplicate="reject",
    message="This month's payroll has been started.",
    description="payroll",
)
def run_payroll(month):
    if month == "2026-13":
        raise ValueError("there is no such month")
    paid.append(month)
    return {"paid": month}


@signals.completed.connect_via(app)
@signals.kept_failed.connect_via(app)
@signals.duplicate.connect_via(app)
@signals.refused.connect_via(app)
@signals.taken_over.connect_via(app)
def write_audit(_, event):
    audit.append((g.admin, event.description, event.name, event.digest, event.reason))
    # [end-settings]
