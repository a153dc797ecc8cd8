"""Events in Avro with Confluent's header into a Postgres table: the loop with a registry beside Spark's `from_avro`.

The same as `kafka_table.py` does with JSON, and by the same sides: the topic's bodies are the demo's flights as
Confluent's serializer writes them, five bytes of header and Avro. By hand a program cuts the header off, and hands
the rest to `from_avro` of Spark's own spark-avro with the schema as it has fetched it once:
`from_avro(substring(value, 6), SCHEMA)`. It asks nobody by which schema a body was written, and its query ends at the
first body that is not of this one. Ours is `format = "avro"` with `registry`, by which it reads the numbers of schemas
in the headers, proves each body, and sets aside what it cannot read. The registry is the test kit's; it is not counted,
as the broker is not.

The goal is CPU time: decoding and table together take at most two thirds of what the best program by hand takes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from tests.peers.maven import jars

from flight_bodies import AVRO, in_avro
from kafka_table import GOALS, Encoding, Row, measured, rows_of
from leasehold_testkit.emulators.registry import RegistryServer

SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
_GOAL = "ratio >= 1.5"


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    if shutil.which("mvn") is None:
        print("kafka_avro is left out: there is no mvn here", file=sys.stderr)
        return []
    schema = json.dumps(AVRO)
    with closing(RegistryServer()) as registry:
        header = b"\0" + registry.register("flights-value", schema).to_bytes(4, "big")
        encoding = Encoding(
            write=lambda body: header + in_avro(body),
            parsed=f"from_avro(substring(value, 6), '{schema}', map())",
            stated=f'format = "avro"\nregistry = "{registry.url}"\n',
            libraries=(jars("spark-avro", [SPARK_AVRO], alone=True),),
        )
        taken = measured(encoding, quick)
        assert "/schemas/ids/1" in str(registry.requests), "the loop has not asked the registry"
    return [row for size in GOALS for row in rows_of(size, taken[size], "", _GOAL, "in Avro")]


if __name__ == "__main__":
    try:
        for line in run("--quick" in sys.argv):
            print(line)
    except subprocess.TimeoutExpired as error:
        sys.exit(f"no end: {error}")
