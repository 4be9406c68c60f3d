import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own command-line tools, one after the other in one JVM.
 *
 * <pre>
 * request  CLASS ARGUMENT... , each word base64, then "-" and the standard input, base64; one line
 * answer   EXIT-CODE OUTPUT ERROR , the last two base64; one line
 * </pre>
 */
public final class KafkaTools {
    private static final class Exited extends Error {
        private Exited() {
            super(null, null, false, false);
        }
    }

    private static final List<Runnable> hooks = new ArrayList<>();
    private static volatile int exitCode;

    public static void main(String[] none) throws Exception {
        Exit.Procedure exit = (code, message) -> {
            // Some tools catch what ends them, complain of it and exit again.
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
            exitCode = exitCode < 0 ? code : exitCode;
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ");
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(bytes(words[words.length - 1])));
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
            int code = run(Arrays.stream(words, 0, words.length - 2).map(word -> new String(bytes(word))).toArray(String[]::new));
            answers.println(code + " " + text(output) + " " + text(errors));
            answers.flush();
        }
    }

    private static int run(String[] words) throws Exception {
        exitCode = -1;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
        } catch (InvocationTargetException thrown) {
            if (exitCode < 0) {
                thrown.getCause().printStackTrace();
                return -1;
            }
        } finally {
            // The console producer sends what is left when the JVM ends.
            hooks.forEach(Runnable::run);
            hooks.clear();
        }
        return Math.max(exitCode, 0);
    }

    private static byte[] bytes(String word) {
        return Base64.getDecoder().decode(word.equals("=") ? "" : word);
    }

    private static String text(ByteArrayOutputStream printed) {
        String text = Base64.getEncoder().encodeToString(printed.toByteArray());
        return text.isEmpty() ? "=" : text;
    }
}
