"""Login and CSRF protection beside the token."""

from flask import Flask, redirect, render_template_string, request
from flask_login import LoginManager, UserMixin, login_required, login_user
from flask_wtf.csrf import CSRFProtect

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
app.config["SECRET_KEY"] = "only an example"
CSRFProtect(app)
Idempotency(app)
logins = LoginManager(app)
transfers = []


@logins.user_loader
def load_user(name):
    user = UserMixin()
    user.id = name
    return user


@app.post("/login")
def login():
    login_user(load_user(request.form["name"]))
    return redirect("/transfer")


# [start-form]
FORM = """
<form method="post">
  <input type="hidden" name="csrf_token" value="{{ csrf_token() }}">
  {{ idempotency_token() }}
  <input name="amount"> <button>Transfer</button>
</form>
"""


@app.get("/transfer")
def form():
    return render_template_string(FORM)


@app.post("/transfer")
@login_required
@idempotent  # the innermost: who may not enter uses no token up
def transfer():
    transfers.append(request.form["amount"])
    return redirect("/transfers")
    # [end-form]
