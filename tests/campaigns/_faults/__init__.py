"""The parts of the campaign ``faults``: the store pair, the injector, the clients, the history and its checker."""
