"""Settings for forms that are clicked twice: the second click is to do nothing, and to say nothing."""

from flask import Flask, render_template_string, request

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
saved = []


# [start-settings]
PROFILE = """
<form method="post">{{ idempotency_token(ttl=900) }}
  <input name="nick"> <button>Save</button>
</form>
"""


@app.get("/profile")
def show_profile():
    return render_template_string(PROFILE)


@app.post("/profile")
@idempotent(consume=True, on_duplicate="ignore")
def save_profile():
    saved.append(request.form["nick"])
    return "Saved."


@app.post("/feedback")
@idempotent(interval=5)
def give_feedback():
    saved.append(request.form["text"])
    return "Thank you."
    # [end-settings]
