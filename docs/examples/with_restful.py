"""Beside Flask-RESTful."""

from flask import Flask
from flask_restful import Api, Resource, fields, marshal_with

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
api = Api(app)
made = []


# [start-view]
class Orders(Resource):
    @marshal_with({"number": fields.Integer})
    @idempotent
    def post(self):
        made.append("order")
        return {"number": len(made)}, 201
        # [end-view]


api.add_resource(Orders, "/orders")
