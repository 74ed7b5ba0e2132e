from flask import Flask, redirect, render_template_string, request

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
orders = []

PAGE = """
<form method="post">
  {{ idempotency_token() }}
  <input name="item"> <button>Order</button>
</form>
<p>Orders: {{ orders }}</p>
"""


@app.get("/")
def form():
    return render_template_string(PAGE, orders=orders)


@app.post("/")
@idempotent
def create_order():
    orders.append(request.form["item"])
    return redirect("/")
