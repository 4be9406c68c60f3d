import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * An application of Kafka Streams, exactly once: the words of the topic "lines", counted into "counts".
 *
 * <pre>
 * arguments  NAME=VALUE... , its configuration
 * request    state
 * answer     WORD COUNT , a line for each word of the state store, then an empty line
 * </pre>
 *
 * It ends with its standard input; an exception that Kafka Streams does not handle ends it with code 1.
 */
public final class WordCount {
    private static final String STORE = "words";

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            properties.put(argument.substring(0, at), argument.substring(at + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as(STORE))
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
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

    private static void print(KafkaStreams streams) throws Exception {
        while (streams.state() != KafkaStreams.State.RUNNING) {
            Thread.sleep(20);
        }
        ReadOnlyKeyValueStore<String, Long> store =
            streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        try (KeyValueIterator<String, Long> rows = store.all()) {
            while (rows.hasNext()) {
                KeyValue<String, Long> row = rows.next();
                System.out.println(row.key + " " + row.value);
            }
        }
        System.out.println();
        System.out.flush();
    }
}
