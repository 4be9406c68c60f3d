/*
 * A client that connects by the given properties, writes records, and reads each before it writes the next.
 *
 *     node login.js '{"bootstrap": "host:port", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
 *                     "user": "alice", "password": "...", "token": "...", "ca": "ca.pem",
 *                     "certificate": "own.pem", "topic": "t", "records": "1", "pause.ms": "0"}'
 *
 * It prints "ok", or the error that a user of kafkajs sees.
 */
"use strict";

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const to = JSON.parse(process.argv[2]);
const topic = to["topic"];

function ssl() {
  if (!to["security.protocol"].endsWith("SSL")) return undefined;
  const own = to["certificate"] === undefined ? undefined : fs.readFileSync(to["certificate"]);
  return { ca: [fs.readFileSync(to["ca"])], cert: own, key: own };
}

function sasl() {
  if (!to["security.protocol"].startsWith("SASL")) return undefined;
  const mechanism = to["sasl.mechanism"].toLowerCase();
  if (mechanism !== "oauthbearer") return { mechanism, username: to["user"], password: to["password"] };
  return { mechanism, oauthBearerProvider: async () => ({ value: to["token"] }) };
}

const kafka = new Kafka({
  brokers: [to["bootstrap"]],
  ssl: ssl(),
  sasl: sasl(),
  // By default it logs in again in the last ten seconds of a session: with each request of a short one.
  reauthenticationThreshold: 1000,
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: 2 },
});

async function writeAndRead() {
  const producer = kafka.producer();
  const consumer = kafka.consumer({ groupId: `${topic}-group`, maxWaitTimeInMs: 100 });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  let take;
  const crash = new Promise((_, reject) => consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error)));
  consumer.run({
    eachMessage: async ({ message }) => {
      values.push(message.value.toString());
      if (take !== undefined) take();
    },
  });
  for (let written = 1; written <= Number(to["records"]); written++) {
    const taken = new Promise((resolve) => (take = resolve));
    await producer.send({ topic, messages: [{ value: "hello" }] });
    if (values.length < written) await Promise.race([taken, crash]);
    if (values.length !== written || values.at(-1) !== "hello") throw new Error(`read ${values}`);
    await new Promise((resolve) => setTimeout(resolve, Number(to["pause.ms"])));
  }
  await consumer.disconnect();
  await producer.disconnect();
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  if (!(await admin.listTopics()).includes(topic)) {
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  }
  await admin.disconnect();
  await writeAndRead();
}

main()
  .then(
    () => console.log("ok"),
    (error) => console.log(`${error.name}: ${error.message}`),
  )
  .finally(() => process.exit());
