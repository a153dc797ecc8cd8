"""The tables of what is set aside: rejected rows, and the notes of dropped ones. The contract is `sinks.set_aside`."""
