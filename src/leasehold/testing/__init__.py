"""Contracts that a third party's store or hub subclasses as tests (they need pytest), and a clock moved by hand."""
