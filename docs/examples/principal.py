"""A home-made login: say who is asking, so that a stored answer is shown to nobody else."""

from flask import Flask, request, session

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
app.config["SECRET_KEY"] = "only an example"
app.config["IDEMPOTENCY_PRINCIPAL"] = lambda: session.get("user_id")
Idempotency(app)


@app.post("/login")
def login():
    session["user_id"] = request.form["user_id"]
    return "", 204


@app.post("/statement")
@idempotent
def statement():
    return f"The statement of {session['user_id']}"
