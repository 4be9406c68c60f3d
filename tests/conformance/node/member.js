/*
 * A member of a consumer group: it says what it has handled, "partition offset" a line, and commits it.
 *
 *     node member.js BOOTSTRAP GROUP TOPIC [start.ms=TIMESTAMP] [pause=PARTITION]
 *
 * With start.ms it seeks to that time wherever it is assigned a partition; it leaves a paused partition
 * alone until SIGCONT. SIGTERM lets it leave the group in order.
 */
"use strict";

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const STDOUT = 1;
const [bootstrap, groupId, topic, ...pairs] = process.argv.slice(2);
const properties = new Map(pairs.map((pair) => pair.split("=")));

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

async function offsetsAtStart() {
  const admin = kafka.admin();
  await admin.connect();
  const offsets = await admin.fetchTopicOffsetsByTimestamp(topic, Number(properties.get("start.ms")));
  await admin.disconnect();
  return offsets;
}

async function seekWhereAssigned() {
  const offsets = await offsetsAtStart();
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const assigned = payload.memberAssignment[topic] ?? [];
    for (const { partition, offset } of offsets.filter((each) => assigned.includes(each.partition))) {
      consumer.seek({ topic, partition, offset });
    }
  });
}

function pauseUntilContinued() {
  const paused = [{ topic, partitions: [Number(properties.get("pause"))] }];
  let isPaused = true;
  consumer.on(consumer.events.GROUP_JOIN, () => isPaused && consumer.pause(paused));
  process.once("SIGCONT", () => {
    isPaused = false;
    consumer.resume(paused);
  });
}

async function main() {
  await consumer.connect();
  if (properties.has("start.ms")) await seekWhereAssigned();
  if (properties.has("pause")) pauseUntilContinued();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 3, eachBatch: handle });
}

process.once("SIGTERM", () => consumer.disconnect().then(() => process.exit(0)));
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
