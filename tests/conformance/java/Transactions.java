import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import sun.misc.Signal;

/**
 * A program that consumes, transforms and produces in transactions: the Java client's form of
 * tests/harness/transaction_program.py, with the same arguments and the same lines of output.
 *
 * <pre>
 * BOOTSTRAP NAME=VALUE...            the program; SIGTERM ends it with code 0 once no transaction is open
 * BOOTSTRAP read TOPIC:PARTITION...  each partition as read_committed, from its start to its last stable offset:
 *                                    "end TOPIC PARTITION OFFSET" and "record TOPIC PARTITION OFFSET KEY ID"
 * BOOTSTRAP quick TRANSACTIONAL_ID TOPIC ROUNDS
 *                                    transactions that end one right after the other; the first error ends it
 * </pre>
 */
public final class Transactions {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int RECORDS_MAX = 6;
    private static final int PAUSE_MS = 20;
    private static final int DEADLINE_SECONDS = 60;
    private static final double ABORTS = 0.25;
    private static final double TOMBSTONES = 0.2;

    private static volatile boolean isEnded;

    private final Map<String, String> settings;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();
    private final Random random;
    private int count;

    public static void main(String[] arguments) throws Exception {
        Signal.handle(new Signal("TERM"), signal -> isEnded = true);
        List<String> words = List.of(arguments).subList(1, arguments.length);
        if (words.get(0).equals("read")) {
            read(arguments[0], words.subList(1, words.size()).stream().map(Transactions::partition).toList());
            return;
        }
        if (words.get(0).equals("quick")) {
            quick(arguments[0], words.get(1), words.get(2), Integer.parseInt(words.get(3)));
            return;
        }
        try {
            new Transactions(arguments[0], words).work();
            System.exit(0);
        } catch (Throwable whatever) {
            // Who started it starts it again.
            whatever.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private Transactions(String bootstrap, List<String> words) {
        settings = words.stream().map(word -> word.split("=", 2)).collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        random = new Random(Long.parseLong(settings.get("seed")) * 1000 + Integer.parseInt(settings.get("life")));
        Properties properties = common(bootstrap);
        properties.put("transactional.id", settings.get("transactional.id"));
        properties.put("transaction.timeout.ms", "10000");
        properties.put("linger.ms", "1");
        properties.put("max.block.ms", "20000");
        producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        consumer = consuming(common(bootstrap));
    }

    private KafkaConsumer<byte[], byte[]> consuming(Properties properties) {
        properties.put("group.id", settings.get("group"));
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", "" + RECORDS_MAX);
        properties.put("fetch.max.wait.ms", "100");
        properties.put("session.timeout.ms", "3000");
        properties.put("heartbeat.interval.ms", "500");
        boolean isMember = settings.containsKey("member");
        if (isMember) {
            properties.put("group.instance.id", settings.get("transactional.id"));
        }
        var made = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> inputs = List.of(settings.get("inputs").split(",")).stream().map(Transactions::partition).toList();
        if (isMember) {
            made.subscribe(inputs.stream().map(TopicPartition::topic).distinct().toList());
        } else {
            made.assign(inputs);
        }
        return made;
    }

    private void work() throws Exception {
        while (!isEnded) {
            List<ConsumerRecord<byte[], byte[]>> inputs = new ArrayList<>();
            consumer.poll(POLL).forEach(inputs::add);
            if (!inputs.isEmpty() && !transact(inputs)) {
                rewind();
            }
        }
        consumer.close();
        producer.close();
    }

    /** One transaction; whether it was committed. */
    private boolean transact(List<ConsumerRecord<byte[], byte[]>> inputs) throws Exception {
        count++;
        String name = settings.get("transactional.id") + "." + settings.get("life") + "." + count;
        say("begin " + name + " " + System.nanoTime() + " " + settings.get("group"));
        producer.beginTransaction();
        send(name, inputs);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> input : inputs) {
            offsets.put(new TopicPartition(input.topic(), input.partition()), new OffsetAndMetadata(input.offset() + 1));
        }
        offsets.forEach((place, offset) -> say("offsets " + place.topic() + " " + place.partition() + " " + offset.offset()));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        Thread.sleep(random.nextInt(PAUSE_MS));
        if (random.nextDouble() < ABORTS) {
            abort();
            return false;
        }
        commit();
        return true;
    }

    private void send(String name, List<ConsumerRecord<byte[], byte[]>> inputs) {
        sent.clear();
        for (ConsumerRecord<byte[], byte[]> input : inputs) {
            for (String topic : settings.get("outputs").split(",")) {
                int partition = random.nextInt(Integer.parseInt(settings.get("partitions")));
                boolean isTombstone = topic.startsWith("table") && random.nextDouble() < TOMBSTONES;
                String key = new String(input.key());
                say("send " + topic + " " + partition + " " + key + " " + input.topic() + ":" + input.partition() + ":"
                    + input.offset());
                byte[] value = isTombstone ? null : (key + " of " + name).getBytes();
                var record = new ProducerRecord<byte[], byte[]>(topic, partition, input.key(), value);
                record.headers().add("id", (name + " " + sent.size()).getBytes());
                sent.add(producer.send(record));
            }
        }
    }

    private void commit() throws Exception {
        producer.flush();
        StringBuilder at = new StringBuilder("at");
        for (Future<RecordMetadata> future : sent) {
            at.append(' ').append(future.get().offset());
        }
        say(at.toString());
        say("commit");
        producer.commitTransaction();
        say("committed");
    }

    private void abort() {
        if (random.nextBoolean()) {
            producer.flush();
        }
        say("abort");
        producer.abortTransaction();
        say("aborted");
    }

    private void rewind() {
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        assigned.forEach(place -> {
            OffsetAndMetadata found = committed.get(place);
            consumer.seek(place, found == null ? 0 : found.offset());
        });
    }

    private static void read(String bootstrap, List<TopicPartition> places) {
        Properties properties = common(bootstrap);
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "none");
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            ends.forEach((place, end) -> say("end " + place.topic() + " " + place.partition() + " " + end));
            consumer.seekToBeginning(places);
            long deadline = System.nanoTime() + Duration.ofSeconds(DEADLINE_SECONDS).toNanos();
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the end was not reached in time: " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                        say("record " + record.topic() + " " + record.partition() + " " + record.offset() + " "
                            + new String(record.key()) + " " + new String(record.headers().lastHeader("id").value()));
                    }
                }
            }
        }
    }

    private static void quick(String bootstrap, String transactionalId, String topic, int rounds) {
        Properties properties = common(bootstrap);
        properties.put("transactional.id", transactionalId);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int round = 0; round < rounds; round++) {
                begin(producer, topic, "commit-" + round);
                producer.commitTransaction();
                begin(producer, topic, "abort-" + round);
                producer.flush();
                producer.abortTransaction();
                begin(producer, topic, "quick-" + round);
                producer.abortTransaction();
            }
        }
    }

    private static void begin(KafkaProducer<byte[], byte[]> producer, String topic, String value) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, value.getBytes()));
    }

    private static TopicPartition partition(String word) {
        int colon = word.lastIndexOf(':');
        return new TopicPartition(word.substring(0, colon), Integer.parseInt(word.substring(colon + 1)));
    }

    private static Properties common(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("reconnect.backoff.ms", "20");
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("retry.backoff.ms", "20");
        properties.put("retry.backoff.max.ms", "100");
        return properties;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
