"""`leasehold run` that is killed by SIGKILL when it comes to a step of a batch for the N-th time.

    python dying_instance.py STEP N

Steps: `planned`, `read` (the tasks have told what they have read), `collected`, `committed`, `checkpointed`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from leasehold.spark import PipelineRun, read_pipeline_file
from leasehold.spark.loop.classic_jobs import ClassicJobs
from leasehold.spark.loop.evaluation import Evaluation
from leasehold.spark.loop.feed import Feed
from leasehold.spark.plan.share import Share
from leasehold.spark.table.entity_table import EntityTable
from tests.faults.dying import die_behind

STEPS: dict[str, tuple[type, str]] = {
    "planned": (Feed, "order"),
    "read": (ClassicJobs, "receipts"),
    "collected": (Evaluation, "__call__"),
    "committed": (EntityTable, "write"),
    "checkpointed": (Share, "record"),
}


def main() -> None:
    step, left = sys.argv[1], int(sys.argv[2])
    die_behind(*STEPS[step], left)
    PipelineRun(read_pipeline_file(Path("pipeline.toml")), owner_name="blue", available_now=True).run(threading.Event())


if __name__ == "__main__":
    main()
