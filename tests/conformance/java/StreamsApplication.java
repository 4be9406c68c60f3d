import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.UnaryOperator;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * An application of Kafka Streams with one state store, which it prints.
 *
 * <pre>
 * arguments  words NAME=VALUE...         the words of the topic "lines", counted into "counts"
 *            table=TOPIC NAME=VALUE...   a global table of the topic
 *            NAME=VALUE                  configuration; restore.suffix=.latest: from the changelogs' views
 * request    rows
 * answer     KEY VALUE , a line for each row of the store, then an empty line
 * </pre>
 *
 * It ends with its standard input; an exception that Kafka Streams does not handle ends it with code 1.
 */
public final class StreamsApplication {
    private static final String STORE = "rows";
    private static final String WORDS = "words";
    private static final String TABLE = "table=";

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        for (int number = 1; number < arguments.length; number++) {
            int at = arguments[number].indexOf('=');
            properties.put(arguments[number].substring(0, at), arguments[number].substring(at + 1));
        }
        Topology topology = topology(arguments[0]);
        String suffix = (String) properties.remove("restore.suffix");
        KafkaStreams streams = suffix == null
            ? new KafkaStreams(topology, properties)
            : new KafkaStreams(topology, properties, new RestoreFromViews(suffix));
        streams.setUncaughtExceptionHandler(exception -> {
            exception.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        while (requests.readLine() != null) {
            print(streams);
        }
        streams.close();
    }

    private static Topology topology(String name) {
        StreamsBuilder builder = new StreamsBuilder();
        if (name.startsWith(TABLE)) {
            builder.<String, String>globalTable(name.substring(TABLE.length()), Materialized.as(STORE));
        } else if (name.equals(WORDS)) {
            builder.<String, String>stream("lines")
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as(STORE))
                .toStream()
                .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        } else {
            throw new IllegalArgumentException("unknown topology: " + name);
        }
        return builder.build();
    }

    private static void print(KafkaStreams streams) throws Exception {
        while (streams.state() != KafkaStreams.State.RUNNING) {
            Thread.sleep(20);
        }
        ReadOnlyKeyValueStore<String, Object> store =
            streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        try (KeyValueIterator<String, Object> rows = store.all()) {
            while (rows.hasNext()) {
                KeyValue<String, Object> row = rows.next();
                System.out.println(row.key + " " + row.value);
            }
        }
        System.out.println();
        System.out.flush();
    }

    /** Restores state stores from the views of their changelogs: each key once instead of its history. */
    private static final class RestoreFromViews extends DefaultKafkaClientSupplier {
        private final String suffix;

        RestoreFromViews(String suffix) {
            this.suffix = suffix;
        }

        @Override
        @SuppressWarnings("unchecked")
        public Consumer<byte[], byte[]> getRestoreConsumer(Map<String, Object> config) {
            Consumer<byte[], byte[]> views = super.getRestoreConsumer(config);
            return (Consumer<byte[], byte[]>) Proxy.newProxyInstance(
                Consumer.class.getClassLoader(),
                new Class<?>[] {Consumer.class},
                (proxy, method, arguments) -> {
                    Object[] renamed = arguments == null ? null : arguments.clone();
                    for (int number = 0; renamed != null && number < renamed.length; number++) {
                        renamed[number] = renamed(renamed[number], this::view);
                    }
                    try {
                        return renamed(method.invoke(views, renamed), this::changelog);
                    } catch (InvocationTargetException failed) {
                        throw failed.getCause();
                    }
                });
        }

        private TopicPartition view(TopicPartition changelog) {
            return new TopicPartition(changelog.topic() + suffix, changelog.partition());
        }

        private TopicPartition changelog(TopicPartition view) {
            String name = view.topic();
            return new TopicPartition(name.substring(0, name.length() - suffix.length()), view.partition());
        }

        /** Returns an argument or a result with the topics of all its partitions renamed. */
        private static Object renamed(Object value, UnaryOperator<TopicPartition> rename) {
            if (value instanceof TopicPartition partition) {
                return rename.apply(partition);
            }
            if (value instanceof ConsumerRecords<?, ?> records) {
                return renamed(records, rename);
            }
            if (value instanceof Map<?, ?> map) {
                Map<Object, Object> all = new HashMap<>();
                map.forEach((key, each) -> all.put(renamed(key, rename), each));
                return all;
            }
            if (value instanceof Collection<?> many) {
                Collection<Object> all = value instanceof Set ? new HashSet<>() : new ArrayList<>();
                many.forEach(each -> all.add(renamed(each, rename)));
                return all;
            }
            return value;
        }

        private static <K, V> ConsumerRecords<K, V> renamed(
            ConsumerRecords<K, V> records, UnaryOperator<TopicPartition> rename) {
            Map<TopicPartition, List<ConsumerRecord<K, V>>> all = new HashMap<>();
            for (TopicPartition view : records.partitions()) {
                all.put(rename.apply(view), records.records(view));
            }
            return new ConsumerRecords<>(all, Map.of());
        }
    }
}
