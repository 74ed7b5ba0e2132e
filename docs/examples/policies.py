"""How a duplicate is answered, view by view."""

from flask import Flask, flash, redirect, request

from flask_idempotent import Idempotency, InProgress, idempotent

app = Flask(__name__)
app.secret_key = "only an example"
Idempotency(app)
done = []


# [start-named]
@app.post("/order")
@idempotent  # replay: the first answer again
def order():
    done.append(request.path)
    return redirect(f"/orders/{len(done)}")


@app.post("/vote")
@idempotent(on_duplicate="reject", message="You have voted already.")
def vote():
    done.append(request.path)
    return "Thank you."


@app.post("/ping")
@idempotent(on_duplicate="ignore")
def ping():
    done.append(request.path)
    return "Noted."
    # [end-named]


# [start-callable]
def back_to_the_list(duplicate):
    if isinstance(duplicate, InProgress):
        flash("Your booking is being worked on.")
    return redirect("/bookings")


@app.post("/book")
@idempotent(on_duplicate=back_to_the_list)
def book():
    done.append(request.path)
    return redirect("/bookings/1")
    # [end-callable]


# [start-consume]
@app.post("/like")
@idempotent(consume=True)
def like():
    done.append(request.path)
    return "Liked."
    # [end-consume]
