import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.LoadBalancingStrategy;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.storage.blob.BlobContainerAsyncClient;
import com.azure.storage.blob.BlobContainerClientBuilder;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Java's event processor as a side of `hubs.py`: `JavaProcessor CONSUMER_GROUP PARTITIONS EVENTS`.
 *
 * One turn for every line that it is given, each answered as `hub_sides.py` does. It checkpoints each batch in a
 * container of the turn's own, as the side of Python's processor does, and counts.
 */
public class JavaProcessor {
    public static void main(String[] arguments) throws Exception {
        String group = arguments[0];
        int partitions = Integer.parseInt(arguments[1]);
        long total = Long.parseLong(arguments[2]);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (int turn = 0; asked.readLine() != null; turn++) {
            double before = cpu();
            double seconds = turn(group, partitions, total, "java-" + ProcessHandle.current().pid() + "-" + turn);
            System.out.printf("{\"events\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n", total, seconds, cpu() - before);
        }
        System.exit(0);
    }

    private static double turn(String group, int partitions, long total, String container) throws Exception {
        BlobContainerAsyncClient blobs = new BlobContainerClientBuilder()
            .connectionString(System.getenv("BENCH_STORAGE"))
            .containerName(container)
            .buildAsyncClient();
        blobs.create().block();
        Map<String, EventPosition> starts = new HashMap<>();
        for (int partition = 0; partition < partitions; partition++) {
            starts.put(Integer.toString(partition), EventPosition.earliest());
        }
        AtomicLong count = new AtomicLong();
        AtomicLong began = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        EventProcessorClient client = new EventProcessorClientBuilder()
            .connectionString(System.getenv("BENCH_CONNECTION"))
            .consumerGroup(group)
            .checkpointStore(new BlobCheckpointStore(blobs))
            .initialPartitionEventPosition(starts)
            .loadBalancingStrategy(LoadBalancingStrategy.GREEDY)
            .loadBalancingUpdateInterval(Duration.ofSeconds(1))
            .processEventBatch(given -> {
                began.compareAndSet(0, System.nanoTime());
                if (count.addAndGet(given.getEvents().size()) >= total) {
                    ended.compareAndSet(0, System.nanoTime());
                    done.countDown();
                }
                given.updateCheckpoint();
            }, 300, Duration.ofMillis(100))
            .processError(given -> {
                if (done.getCount() > 0) { // what is under way when it is stopped fails
                    System.err.println(given.getThrowable());
                }
            })
            .buildEventProcessorClient();
        client.start();
        done.await();
        client.stop();
        return (ended.get() - began.get()) / 1e9;
    }

    private static double cpu() {
        return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime() / 1e9;
    }
}
