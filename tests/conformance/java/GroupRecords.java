import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

/**
 * Reads records of __consumer_offsets as Apache Kafka does, and writes them again.
 *
 * Each line of the input is a key and a value in Base64; it is answered by a line of the key and the value as Kafka
 * writes them, and by two lines of JSON that say what Kafka understood.
 */
public final class GroupRecords {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream output = new PrintStream(System.out, false, "UTF-8");
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ");
            CoordinatorRecord record = serde.deserialize(decoded(parts[0]), decoded(parts[1]));
            output.println(encoded(serde.serializeKey(record)) + " " + encoded(serde.serializeValue(record)));
            output.println(CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()));
            output.println(CoordinatorRecordJsonConverters.writeRecordValueAsJson(
                record.value().message(), record.value().version()));
        }
        output.flush();
    }

    private static ByteBuffer decoded(String text) {
        return ByteBuffer.wrap(Base64.getDecoder().decode(text));
    }

    private static String encoded(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
