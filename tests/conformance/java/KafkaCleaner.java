import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's log and log cleaner, without a broker, on a clock that stands still: one command a line on standard
 * input, answered by lines of which the last is ".".
 *
 * <pre>
 * new DIRECTORY MAP_BYTES NOW_MS NAME=VALUE...   a new, empty log of topic "orders", partition 0, in DIRECTORY
 * append BASE64                                  a batch with its offsets, as a follower gets it; all of it is then stable
 * roll                                           a new active segment
 * now MS                                         the clock
 * expire                                         forget idle producers
 * reopen                                         a clean stop and a start
 * clean                                          one pass, if the log is eligible: "cleaned FIRST_DIRTY UPPER_BOUND END"
 * dump                                           every batch and record
 * read PATH                                      the same of a file of batches
 * </pre>
 * A batch is dumped as "batch" and its fields in the order of {@link #dump}, a record as "record" and offset,
 * timestamp, key, value, headers; bytes are hexadecimal with a "=" in front, and "-" is null.
 * What is asked of a batch's bytes is asked of Kafka's own reader, which compares its CRC.
 */
public final class KafkaCleaner {
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final int IO_BUFFER_BYTES = 64 * 1024;
    private static final int MESSAGE_BYTES_MAX = 8 * 1024 * 1024;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;

    private final StoppedClock clock = new StoppedClock();
    private final PrintStream out;
    private final LogDirFailureChannel failures = new LogDirFailureChannel(1);
    /** Never started, so it runs nothing: no flush and no deletion disturbs the log. */
    private final KafkaScheduler scheduler = new KafkaScheduler(1);
    private final ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
    private File directory;
    private LogConfig config;
    private UnifiedLog log;
    private LogCleanerManager manager;
    private Cleaner cleaner;

    private KafkaCleaner(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var driver = new KafkaCleaner(out);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            driver.run(line.split(" "));
            out.println(".");
            out.flush();
        }
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "new" -> create(words);
            case "append" -> append(Base64.getDecoder().decode(words[1]));
            case "roll" -> log.roll();
            case "now" -> clock.now = Long.parseLong(words[1]);
            case "expire" -> log.removeExpiredProducers(clock.now);
            case "reopen" -> reopen();
            case "clean" -> clean();
            case "dump" -> dumpLog();
            case "read" -> dump(ByteBuffer.wrap(Files.readAllBytes(Path.of(words[1]))));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void create(String[] words) throws Exception {
        if (log != null) {
            log.close();
            manager.removeMetrics();
        }
        directory = new File(words[1], "orders-0");
        Files.createDirectories(directory.toPath());
        clock.now = Long.parseLong(words[3]);
        var properties = new Properties();
        for (int i = 4; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        config = new LogConfig(properties);
        open();
        manager = new LogCleanerManager(List.of(directory.getParentFile()), logs, failures);
        var unthrottled = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock);
        var map = new SkimpyOffsetMap(Integer.parseInt(words[2]));
        cleaner = new Cleaner(0, map, IO_BUFFER_BYTES, MESSAGE_BYTES_MAX, 0.9, unthrottled, clock, partition -> { });
    }

    private void open() throws IOException {
        var producers = new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false);
        log = UnifiedLog.create(directory, config, 0, 0, scheduler, new BrokerTopicStats(false), clock, 900_000,
            producers, 600_000, failures, true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        logs.put(PARTITION, log);
    }

    private void reopen() throws IOException {
        log.close();
        open();
    }

    private void append(byte[] batch) throws IOException {
        log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(batch)), Integer.MAX_VALUE);
        log.updateHighWatermark(log.logEndOffset());
    }

    private void clean() throws Exception {
        Optional<LogToClean> picked = manager.grabFilthiestCompactedLog(clock, new PreCleanStats());
        if (picked.isEmpty()) {
            return;
        }
        LogToClean plan = picked.get();
        Map.Entry<Long, CleanerStats> done = cleaner.clean(plan);
        manager.doneCleaning(PARTITION, directory.getParentFile(), done.getKey());
        out.printf("cleaned %d %d %d%n", plan.firstDirtyOffset(), plan.firstUncleanableOffset(), done.getKey());
    }

    private void dumpLog() throws IOException {
        for (LogSegment segment : log.logSegments()) {
            var data = ByteBuffer.allocate(segment.size());
            segment.log().readInto(data, 0);
            dump(data);
        }
    }

    private void dump(ByteBuffer data) {
        for (MutableRecordBatch each : MemoryRecords.readableRecords(data).batches()) {
            var batch = (DefaultRecordBatch) each;
            batch.ensureValid();
            out.println(String.join(" ", "batch", text(batch.baseOffset()), text(batch.lastOffset()),
                text(batch.partitionLeaderEpoch()), batch.compressionType().name, batch.timestampType().name,
                text(batch.maxTimestamp()), text(batch.deleteHorizonMs().orElse(-1)), text(batch.producerId()),
                text(batch.producerEpoch()), text(batch.baseSequence()), text(batch.lastSequence()),
                text(batch.isTransactional()), text(batch.isControlBatch()), text(batch.countOrNull())));
            for (Record record : batch) {
                out.println(String.join(" ", "record", text(record.offset()), text(record.timestamp()),
                    hex(record.key()), hex(record.value()), headers(record)));
            }
        }
    }

    private static String headers(Record record) {
        var joined = new StringBuilder("[");
        for (Header header : record.headers()) {
            joined.append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
            joined.append(':').append(hex(header.value() == null ? null : ByteBuffer.wrap(header.value()))).append(',');
        }
        return joined.append(']').toString();
    }

    private static String text(Object value) {
        return String.valueOf(value);
    }

    private static String hex(ByteBuffer data) {
        if (data == null) {
            return "-";
        }
        var bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return "=" + HexFormat.of().formatHex(bytes);
    }

    /** Time moves when it is told to; nobody waits. */
    private static final class StoppedClock implements Time {
        private long now;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long milliseconds) {
            throw new IllegalStateException("somebody sleeps");
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new IllegalStateException("somebody waits");
        }
    }
}
