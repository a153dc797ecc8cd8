"""What any AMQP 1.0 server needs: types, frames, performatives, and a connection as a state machine without I/O."""
