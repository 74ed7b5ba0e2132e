from flask import Flask, render_template_string

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)


@app.get("/")
def form():
    return render_template_string("<form method=post>{{ idempotency_token() }}<button>Order</button></form>")


@app.post("/")
@idempotent
def order():
    return "Ordered, once."
