import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.format.Avro;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.SerializationFormat;
import java.io.IOException;
import java.io.PrintStream;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Debezium's embedded engine: `DebeziumEngine SETTINGS json|avro`.
 *
 * The file SETTINGS has the properties of the engine, the connector, the transformations and the converters. Each
 * change is a line of JSON on standard output: topic, key and value, these as base64 of their bytes or null. What the
 * engine logs, and why it has ended, is on standard error.
 */
public class DebeziumEngine {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream CHANGES = System.out;

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Paths.get(arguments[0]))) {
            settings.load(reader);
        }
        if (arguments[1].equals("avro")) {
            run(Avro.class, settings);
        } else {
            run(Json.class, settings);
        }
    }

    private static <T> void run(Class<? extends SerializationFormat<T>> format, Properties settings) throws Exception {
        try (io.debezium.engine.DebeziumEngine<ChangeEvent<T, T>> engine = io.debezium.engine.DebeziumEngine
                .create(format)
                .using(settings)
                .notifying(DebeziumEngine::write)
                .using((success, message, error) -> System.err.println("the engine has ended: " + message + " " + error))
                .build()) {
            engine.run();
        }
    }

    private static synchronized <T> void write(ChangeEvent<T, T> change) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", change.destination());
        line.put("key", bytes(change.key()));
        line.put("value", bytes(change.value()));
        try {
            CHANGES.println(JSON.writeValueAsString(line));
            CHANGES.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] bytes(Object written) {
        return written instanceof String text ? text.getBytes(StandardCharsets.UTF_8) : (byte[]) written;
    }
}
