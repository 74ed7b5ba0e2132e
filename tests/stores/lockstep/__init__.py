"""Random scripts on the machine, the memory store and a Redis-like server at once: every answer and record is the same.

The store's scripts run as shipped. The server's time is moved by libfaketime, fakeredis's by hand; each command is sent
in one transaction with TIME, and the machine and the memory store are then asked at the very microsecond at which the
server answered.
"""
