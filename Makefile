# Aliases only: ./dev does the work and needs no make.
.PHONY: demo test

demo test:
	./dev $@
