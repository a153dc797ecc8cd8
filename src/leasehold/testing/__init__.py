"""Contracts that a third party's store, hub or sink subclasses as tests (with pytest), and a clock moved by hand."""
