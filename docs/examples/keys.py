"""Where keys come from, and what else a view may claim."""

from flask import Flask, g, render_template_string, request

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
done = []


def do(*what):
    done.append(what)
    return {"done": len(done)}


# [start-param]
@app.post("/refunds")
@idempotent(source="param", name="request_id")
def refund():
    return do()
    # [end-param]


# [start-expression]
@app.post("/shipments")
@idempotent(key="(json.customer, json.parcels[0].number)")
def ship():
    return do()
    # [end-expression]


# [start-arguments]
@app.post("/jobs/<int:job>/<day>")
@idempotent(key="(job, day)")
def run_job(job, day):
    return do(job, day)
    # [end-arguments]


# [start-callable]
@app.before_request
def find_tenant():
    g.tenant = request.host.partition(".")[0]


@app.post("/invoices/<number>")
@idempotent(key=lambda number: (g.tenant, number))
def write_invoice(number):
    return do(g.tenant, number)
    # [end-callable]


# [start-either]
@app.get("/checkout")
def show_checkout():
    return render_template_string("<form method=post>{{ idempotency_token() }}</form>")


@app.post("/checkout")
@idempotent(source=("token", "header"))
def check_out():
    return do()
    # [end-either]


# [start-scene]
@app.post("/v1/charges")
@idempotent(source="header", scene="charge")
def charge_v1():
    return do()


@app.post("/v2/charges")
@idempotent(source="header", scene="charge")
def charge_v2():
    return do()
    # [end-scene]


# [start-lock]
@app.post("/accounts/<int:account>/withdrawals")
@idempotent(source="header", lock="('account', account)")
def withdraw(account):
    return do(account)
    # [end-lock]


# [start-interval]
@app.post("/comments")
@idempotent(interval=10)
def comment():
    return do()
    # [end-interval]
