"""Pipeline files with a handler, for the plain processor: the table that the file names, and the processor.

from leasehold.handled import handled_processor

handled_processor("orders.toml").run()
"""

from leasehold.handled.pipeline import handled_processor, handled_table

__all__ = ["handled_processor", "handled_table"]
