import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * An application of Kafka Streams with one global table.
 *
 * <pre>
 * arguments  TOPIC NAME=VALUE... , the table's topic and the application's configuration
 * request    state
 * answer     KEY VALUE , a line for each row of the table, then an empty line
 * </pre>
 *
 * It ends with its standard input; an exception that Kafka Streams does not handle ends it with code 1.
 */
public final class GlobalTable {
    private static final String STORE = "rows";

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        for (int number = 1; number < arguments.length; number++) {
            int at = arguments[number].indexOf('=');
            properties.put(arguments[number].substring(0, at), arguments[number].substring(at + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>globalTable(arguments[0], Materialized.as(STORE));
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
        ReadOnlyKeyValueStore<String, String> store =
            streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        try (KeyValueIterator<String, String> rows = store.all()) {
            while (rows.hasNext()) {
                KeyValue<String, String> row = rows.next();
                System.out.println(row.key + " " + row.value);
            }
        }
        System.out.println();
        System.out.flush();
    }
}
