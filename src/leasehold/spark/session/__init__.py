"""The Spark session: a Java to run on, how a session is opened and ended, and what its version has."""
