import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.storage.blob.BlobContainerClientBuilder;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Java's event processor with its blob store, as a member of a mixed fleet: `OfficialProcessor FOLDER NAME`.
 *
 * What it is told is in FOLDER/java.properties. Each event that it is given is a line `partition number` in
 * FOLDER/read-NAME before the checkpoint that covers it is written.
 */
public class OfficialProcessor {
    public static void main(String[] arguments) throws Exception {
        Path folder = Paths.get(arguments[0]);
        Properties told = new Properties();
        try (Reader reader = Files.newBufferedReader(folder.resolve("java.properties"))) {
            told.load(reader);
        }
        FileOutputStream read = new FileOutputStream(folder.resolve("read-" + arguments[1]).toFile(), true);
        Map<String, EventPosition> starts = new HashMap<>();
        for (String partition : told.getProperty("partitions").split(",")) {
            starts.put(partition, EventPosition.earliest());
        }
        EventProcessorClientBuilder builder = new EventProcessorClientBuilder()
            .connectionString(told.getProperty("connection"), told.getProperty("hub"))
            .consumerGroup("$Default")
            .checkpointStore(new BlobCheckpointStore(new BlobContainerClientBuilder()
                .connectionString(told.getProperty("storage"))
                .containerName(told.getProperty("container"))
                .buildAsyncClient()))
            .initialPartitionEventPosition(starts)
            .processEvent(given -> {
                write(read, given.getPartitionContext().getPartitionId(), given.getEventData().getSequenceNumber());
                given.updateCheckpoint();
            })
            .processError(given -> System.err.println(
                "partition " + given.getPartitionContext().getPartitionId() + ": " + given.getThrowable()));
        if (told.containsKey("interval")) {
            builder.loadBalancingUpdateInterval(Duration.parse(told.getProperty("interval")))
                .partitionOwnershipExpirationInterval(Duration.parse(told.getProperty("expiration")));
        }
        EventProcessorClient client = builder.buildEventProcessorClient();
        Runtime.getRuntime().addShutdownHook(new Thread(client::stop));
        client.start();
        Thread.sleep(Long.MAX_VALUE);
    }

    private static synchronized void write(FileOutputStream read, String partition, long number) {
        try {
            read.write((partition + " " + number + "\n").getBytes());
            read.getFD().sync();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
