// JavaScript's event processor with its blob store, as a member of a mixed fleet: `official_processor.mjs FOLDER NAME`.
//
// What it is told is in FOLDER/javascript.json. Each event that it is given is a line `partition number` in
// FOLDER/read-NAME before the checkpoint that covers it is written.
import { earliestEventPosition, EventHubConsumerClient } from "@azure/event-hubs";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { ContainerClient } from "@azure/storage-blob";
import { fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const [folder, name] = process.argv.slice(2);
const told = JSON.parse(readFileSync(join(folder, "javascript.json"), "utf8"));
const read = openSync(join(folder, `read-${name}`), "a");
const store = new BlobCheckpointStore(new ContainerClient(told.storage, told.container));
const client = new EventHubConsumerClient("$Default", told.connection, told.hub, store, {
  loadBalancingOptions: {
    strategy: "balanced",
    ...(told.interval && {
      updateIntervalInMs: told.interval * 1000,
      partitionOwnershipExpirationIntervalInMs: told.expiration * 1000,
    }),
  },
});

const subscription = client.subscribe(
  {
    async processEvents(events, context) {
      if (!events.length) return;
      writeSync(read, events.map((event) => `${context.partitionId} ${event.sequenceNumber}\n`).join(""));
      fsyncSync(read);
      await context.updateCheckpoint(events.at(-1));
    },
    async processError(error, context) {
      console.error(`partition ${context.partitionId}: ${error.message}`);
    },
  },
  { maxBatchSize: 20, maxWaitTimeInSeconds: 0.1, startPosition: earliestEventPosition },
);

process.once("SIGTERM", async () => {
  await subscription.close();
  await client.close();
  process.exit(0);
});
