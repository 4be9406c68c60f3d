/*
 * A member of a consumer group: it says what it has handled, "partition offset" a line, and commits it.
 *
 *     node member.js BOOTSTRAP GROUP TOPIC
 *
 * SIGTERM lets it leave the group in order.
 */
"use strict";

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const STDOUT = 1;
const [bootstrap, groupId, topic] = process.argv.slice(2);

const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 50 },
});
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: 6000,
  heartbeatInterval: 500,
  maxWaitTimeInMs: 200,
});

async function handle({ batch: { partition, messages } }) {
  const said = messages.map(({ offset }) => `${partition} ${offset}\n`);
  fs.writeSync(STDOUT, said.join(""));
  const offset = (BigInt(messages.at(-1).offset) + 1n).toString();
  await consumer.commitOffsets([{ topic, partition, offset }]);
}

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 3, eachBatch: handle });
}

process.once("SIGTERM", () => consumer.disconnect().then(() => process.exit(0)));
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
