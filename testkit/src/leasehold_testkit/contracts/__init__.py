"""Contracts that a third party's store, hub or sink subclasses as tests, with pytest."""
