"""The app's own pages in place of ours."""

from flask import Flask, redirect, render_template_string, request

from flask_idempotent import (
    Duplicate,
    Idempotency,
    IdempotencyError,
    InProgress,
    TokenForeign,
    TokenUnknown,
    idempotent,
)

app = Flask(__name__)
Idempotency(app)
notes = []

FORM = """
<p>{{ hint }}</p>
<form method="post" action="/note">
  {{ idempotency_token() }}
  <input name="text" value="{{ request.form.text }}">
  <button>Save</button>
</form>
"""


@app.get("/note")
def form():
    return render_template_string(FORM)


@app.post("/note")
@idempotent
def save_note():
    notes.append(request.form["text"])
    return redirect("/notes")


# [start-show-again]
@app.errorhandler(TokenUnknown)  # too old, or lost with the store
@app.errorhandler(TokenForeign)  # the visitor changed networks
def show_again(error):
    hint = "This page was open for too long. Please send it once more."
    return render_template_string(FORM, hint=hint), error.code
    # [end-show-again]


# [start-handlers]
@app.errorhandler(InProgress)
def wait(error):
    return "Your note is being saved.", error.code, {"Retry-After": error.retry_after}


@app.errorhandler(Duplicate)  # of views with on_duplicate="reject"
def done(_):
    return redirect("/notes")


@app.errorhandler(IdempotencyError)  # all the others
def refused(error):
    if "HX-Request" in request.headers:
        return render_template_string("<p role=alert>{{ text }}</p>", text=error.message), error.code
    return error  # as it would have been answered
    # [end-handlers]


@app.post("/vote")
@idempotent(on_duplicate="reject")
def vote():
    notes.append("vote")
    return redirect("/notes")
