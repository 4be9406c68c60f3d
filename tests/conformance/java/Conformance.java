import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import sun.misc.Signal;

/**
 * The Java client with its defaults, driven by arguments; it runs on every version it compiles with.
 *
 * <pre>
 * produce BOOTSTRAP TOPIC=CODEC...   records from standard input, sent to every topic named
 * consume BOOTSTRAP TOPIC...         every partition from the start to its end, to standard output
 * follow BOOTSTRAP TOPIC COUNT       COUNT records of partition 0, however long it takes; an offset a line
 * group BOOTSTRAP GROUP TOPIC K=V... a member of a group: what it has handled, "partition offset" a line; until SIGTERM.
 *                                    start.ms=TIMESTAMP: it seeks to that time wherever it is assigned a partition;
 *                                    pause=PARTITION: it leaves that one alone until SIGCONT
 * admin BOOTSTRAP                    verbs from standard input, one answer a line (see Admin below)
 * </pre>
 * A record on standard input is: key, value; on standard output: topic, partition int32, offset int64, key, value.
 * Byte strings are an int32 size (-1: null) and the bytes.
 */
public final class Conformance {
    private static final int DEADLINE_SECONDS = 60;
    private static final String BROKER = "broker:";

    public static void main(String[] arguments) throws Exception {
        List<String> rest = Arrays.asList(arguments).subList(2, arguments.length);
        switch (arguments[0]) {
            case "produce" -> produce(arguments[1], rest);
            case "consume" -> consume(arguments[1], rest);
            case "follow" -> follow(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
            case "admin" -> admin(arguments[1]);
            case "group" -> group(arguments[1], arguments[2], arguments[3], rest.subList(2, rest.size()));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void produce(String bootstrap, List<String> topicsAndCodecs) throws Exception {
        List<byte[][]> records = readRecords();
        for (String topicAndCodec : topicsAndCodecs) {
            String[] pair = topicAndCodec.split("=");
            Properties properties = properties(bootstrap);
            properties.put("compression.type", pair[1]);
            properties.put("linger.ms", "20");
            properties.put("delivery.timeout.ms", "30000");
            properties.put("request.timeout.ms", "10000");
            try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (byte[][] record : records) {
                    sent.add(producer.send(new ProducerRecord<>(pair[0], record[0], record[1])));
                }
                producer.flush();
                for (Future<RecordMetadata> future : sent) {
                    future.get();
                }
            }
        }
    }

    private static void group(String bootstrap, String group, String topic, List<String> settings) {
        Properties properties = properties(bootstrap);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("reconnect.backoff.max.ms", "500");
        for (String setting : settings) {
            String[] pair = setting.split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread running = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                running.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        try (consumer) {
            Placing placing = new Placing(consumer, properties);
            consumer.subscribe(List.of(topic), placing);
            while (true) {
                placing.resumeOnceContinued();
                handle(consumer);
            }
        } catch (WakeupException end) {
            // SIGTERM: leave the group and end.
        }
    }

    /** Where a member starts, and what it leaves alone. */
    private static final class Placing implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Long start;
        private final String paused;
        private final AtomicBoolean isContinued = new AtomicBoolean();

        Placing(KafkaConsumer<byte[], byte[]> consumer, Properties properties) {
            this.consumer = consumer;
            this.start = properties.containsKey("start.ms") ? Long.valueOf(properties.getProperty("start.ms")) : null;
            this.paused = properties.getProperty("pause");
            Signal.handle(new Signal("CONT"), signal -> isContinued.set(true));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {}

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            if (start != null) {
                Map<TopicPartition, Long> times = new HashMap<>();
                assigned.forEach(partition -> times.put(partition, start));
                consumer.offsetsForTimes(times).forEach((partition, found) -> consumer.seek(partition, found.offset()));
            }
            if (!isContinued.get()) {
                consumer.pause(assigned.stream().filter(p -> Integer.toString(p.partition()).equals(paused)).toList());
            }
        }

        void resumeOnceContinued() {
            if (isContinued.get()) {
                consumer.resume(consumer.paused());
            }
        }
    }

    private static void handle(KafkaConsumer<byte[], byte[]> consumer) {
        StringBuilder said = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
            said.append(record.partition()).append(' ').append(record.offset()).append('\n');
        }
        if (said.length() == 0) {
            return;
        }
        System.out.print(said);
        System.out.flush();
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException | RetriableException rebalanced) {
            // Somebody else has the partition, and handles it again.
        }
    }

    private static List<byte[][]> readRecords() throws IOException {
        List<byte[][]> records = new ArrayList<>();
        DataInputStream input = new DataInputStream(new BufferedInputStream(System.in));
        while (true) {
            try {
                records.add(new byte[][] {readBytes(input), readBytes(input)});
            } catch (EOFException end) {
                return records;
            }
        }
    }

    private static byte[] readBytes(DataInputStream input) throws IOException {
        int size = input.readInt();
        return size < 0 ? null : input.readNBytes(size);
    }

    private static void consume(String bootstrap, List<String> topics) throws IOException {
        Properties properties = properties(bootstrap);
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        DataOutputStream output = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : topics) {
                consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + Duration.ofSeconds(DEADLINE_SECONDS).toNanos();
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the end was not reached in time: " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    output.writeInt(record.topic().length());
                    output.writeBytes(record.topic());
                    output.writeInt(record.partition());
                    output.writeLong(record.offset());
                    writeBytes(output, record.key());
                    writeBytes(output, record.value());
                }
            }
        }
        output.flush();
    }

    private static void follow(String bootstrap, String topic, int count) {
        Properties properties = properties(bootstrap);
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            long deadline = System.nanoTime() + Duration.ofSeconds(DEADLINE_SECONDS).toNanos();
            for (int seen = 0; seen < count && System.nanoTime() < deadline;) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.offset());
                    seen++;
                }
            }
        }
    }

    private static void writeBytes(DataOutputStream output, byte[] bytes) throws IOException {
        output.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null) {
            output.write(bytes);
        }
    }

    /**
     * Verbs: create TOPIC PARTITIONS REPLICATION NAME=VALUE...; describe TOPIC; config TOPIC NAME; offsets TOPIC
     * PARTITION; alter TOPIC OPERATION:NAME=VALUE...; where config and alter take "broker:ID" instead of a topic; delete-records TOPIC PARTITION OFFSET; delete TOPIC; list.
     * grow TOPIC PARTITIONS; cluster; dirs; producers TOPIC PARTITION; reassignments; acls; quotas; scram; scram-of USER; client-metrics.
     * The answer is one line: "ok" and the result, or "error" and the exception's class.
     */
    private static void admin(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(properties(bootstrap))) {
            for (String line : new String(System.in.readAllBytes()).split("\n")) {
                String[] words = line.trim().split(" ");
                try {
                    System.out.println("ok " + run(admin, words));
                } catch (ExecutionException error) {
                    Throwable cause = error.getCause();
                    System.out.println("error " + cause.getClass().getSimpleName() + " " + cause.getMessage());
                }
            }
        }
    }

    private static String run(Admin admin, String[] words) throws Exception {
        return switch (words[0]) {
            case "create" -> create(admin, words);
            case "describe" -> {
                var topic = get(admin.describeTopics(List.of(words[1])).topicNameValues().get(words[1]));
                yield topic.name() + " " + topic.partitions().size() + " " + topic.partitions().get(0).replicas().size()
                    + " " + topic.topicId();
            }
            case "config" -> {
                ConfigResource resource = resource(words[1]);
                var entry = get(admin.describeConfigs(List.of(resource)).values().get(resource)).get(words[2]);
                yield entry.value() + " " + entry.source();
            }
            case "offsets" -> {
                TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                yield offset(admin, partition, OffsetSpec.earliest()) + " " + offset(admin, partition, OffsetSpec.latest())
                    + " " + offset(admin, partition, OffsetSpec.maxTimestamp());
            }
            case "delete" -> {
                get(admin.deleteTopics(List.of(words[1])).topicNameValues().get(words[1]));
                yield "deleted";
            }
            case "alter" -> alter(admin, words);
            case "delete-records" -> {
                TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                var below = Map.of(partition, RecordsToDelete.beforeOffset(Long.parseLong(words[3])));
                yield "" + get(admin.deleteRecords(below).lowWatermarks().get(partition)).lowWatermark();
            }
            case "grow" -> {
                var wish = Map.of(words[1], NewPartitions.increaseTo(Integer.parseInt(words[2])));
                get(admin.createPartitions(wish).values().get(words[1]));
                yield "grown";
            }
            case "cluster" -> {
                var cluster = admin.describeCluster();
                yield get(cluster.clusterId()) + " " + get(cluster.controller()).id() + " " + get(cluster.nodes()).size();
            }
            case "dirs" -> {
                var directories = get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).values();
                yield directories.stream().map(d -> d.replicaInfos().size() + " " + d.error() + " "
                    + (d.usableBytes().getAsLong() <= d.totalBytes().getAsLong())).collect(Collectors.joining(","));
            }
            case "producers" -> {
                TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                var state = get(admin.describeProducers(List.of(partition)).partitionResult(partition));
                yield state.activeProducers().stream().map(p -> p.producerEpoch() + " " + p.lastSequence())
                    .collect(Collectors.joining(","));
            }
            case "reassignments" -> "" + get(admin.listPartitionReassignments().reassignments()).size();
            case "acls" -> "" + get(admin.describeAcls(AclBindingFilter.ANY).values()).size();
            case "quotas" -> "" + get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).size();
            case "scram" -> "" + get(admin.describeUserScramCredentials().users()).size();
            case "scram-of" -> get(admin.describeUserScramCredentials(List.of(words[1])).description(words[1])).name();
            case "client-metrics" -> "" + get(admin.listClientMetricsResources().all()).size();
            case "list" -> String.join(",", get(admin.listTopics().names()));
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    private static String create(Admin admin, String[] words) throws Exception {
        Map<String, String> configs = new HashMap<>();
        for (int i = 4; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            configs.put(pair[0], pair[1]);
        }
        NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), Short.parseShort(words[3])).configs(configs);
        var result = admin.createTopics(List.of(topic));
        get(result.values().get(words[1]));
        return get(result.topicId(words[1])).toString();
    }

    private static String alter(Admin admin, String[] words) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 2; i < words.length; i++) {
            String[] change = words[i].split("[:=]", 3);
            ConfigEntry entry = new ConfigEntry(change[1], change.length > 2 ? change[2] : null);
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(change[0])));
        }
        ConfigResource resource = resource(words[1]);
        get(admin.incrementalAlterConfigs(Map.of(resource, changes)).values().get(resource));
        return "altered";
    }

    private static ConfigResource resource(String word) {
        return word.startsWith(BROKER)
            ? new ConfigResource(ConfigResource.Type.BROKER, word.substring(BROKER.length()))
            : new ConfigResource(ConfigResource.Type.TOPIC, word);
    }

    private static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return get(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition)).offset();
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(DEADLINE_SECONDS, java.util.concurrent.TimeUnit.SECONDS);
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }
}
