import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java clients connect with given properties, write records, and read each before they write the next.
 *
 * <pre>
 * request  TOPIC RECORDS PAUSE-MS PROPERTIES , the last in base64; one line
 * answer   "ok", or the error that a user sees: the exception and its causes; one line
 * </pre>
 */
public final class Logins {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    public static void main(String[] none) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ");
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(words[3])));
            // Without this permission the client reads no token from a file.
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", properties.getProperty("sasl.oauthbearer.token.endpoint.url", ""));
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", System.getProperty("java.io.tmpdir"));
            System.out.println(answer(words[0], Integer.parseInt(words[1]), Long.parseLong(words[2]), properties));
        }
    }

    private static String answer(String topic, int records, long pauseMs, Properties properties) {
        try {
            ask(properties);
            return writeAndRead(topic, records, pauseMs, properties);
        } catch (Exception error) {
            StringBuilder text = new StringBuilder();
            for (Throwable each = error; each != null; each = each.getCause()) {
                text.append(text.length() == 0 ? "" : "; ").append(each.getClass().getSimpleName()).append(": ").append(each.getMessage());
            }
            return text.toString().replace('\n', ' ');
        }
    }

    private static void ask(Properties properties) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            admin.describeCluster().clusterId().get();
        }
    }

    private static String writeAndRead(String topic, int records, long pauseMs, Properties properties) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (int written = 0; written < records; written++) {
                producer.send(new ProducerRecord<>(topic, "hello")).get();
                ConsumerRecords<String, String> found = consumer.poll(PATIENCE);
                if (found.count() != 1 || !found.iterator().next().value().equals("hello")) {
                    return "read " + found.count() + " records";
                }
                Thread.sleep(pauseMs);
            }
            return "ok";
        }
    }
}
