/*
 * Reads topics of one partition from their start to the end that they have now, and prints each record as
 * "topic offset key value" with key and value in hexadecimal; a null is empty.
 *
 *     node reader.js BOOTSTRAP TOPIC...
 *
 * As a group of its own: kafkajs has no other consumer.
 */
"use strict";

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const STDOUT = 1;
const PATIENCE_MS = 60_000;
const [bootstrap, ...topics] = process.argv.slice(2);

const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: `reader ${process.pid}`, maxWaitTimeInMs: 200 });
const left = new Set(topics);

function handle({ batch: { topic, highWatermark, messages } }) {
  const said = messages.map(
    ({ offset, key, value }) => `${topic} ${offset} ${key.toString("hex")} ${(value ?? "").toString("hex")}\n`,
  );
  fs.writeSync(STDOUT, said.join(""));
  if (BigInt(messages.at(-1).offset) + 1n === BigInt(highWatermark)) left.delete(topic);
  if (left.size === 0) setImmediate(() => consumer.disconnect().then(() => process.exit(0)));
}

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  await consumer.run({ autoCommit: false, eachBatch: async (payload) => handle(payload) });
}

function end(why) {
  console.error(why);
  process.exit(1);
}

setTimeout(() => end(`it asks for ever for ${[...left].join(", ")}`), PATIENCE_MS).unref();
main().catch(end);
