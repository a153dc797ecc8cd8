import com.azure.core.util.IterableStream;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Java's official client, alone, against a Service Bus server: each operation once. Prints a line an operation.
 */
public class EveryServiceBusOperation {
    private static final Duration SOON = Duration.ofSeconds(20);

    public static void main(String[] arguments) {
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(arguments[0]);
        queue(builder);
        later(builder);
        session(builder);
        subscription(builder);
        System.exit(0);
    }

    private static void say(String what, Object found) {
        System.out.println(what + ": " + found);
    }

    private static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (found.size() < count) {
            IterableStream<ServiceBusReceivedMessage> more = receiver.receiveMessages(count - found.size(), SOON);
            int before = found.size();
            more.forEach(found::add);
            if (found.size() == before) {
                throw new IllegalStateException(found.size() + " of " + count + " messages came");
            }
        }
        return found;
    }

    private static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(message -> found.add(message.getBody().toString()));
        return found;
    }

    private static void queue(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
             ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").disableAutoComplete()
                 .buildClient();
             ServiceBusReceiverClient dead = builder.receiver().queueName("orders")
                 .subQueue(SubQueue.DEAD_LETTER_QUEUE).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
                 .buildClient()) {
            List<ServiceBusMessage> sent = new ArrayList<>();
            for (String body : List.of("complete", "abandon", "defer", "dead-letter", "renew")) {
                ServiceBusMessage message = new ServiceBusMessage(body).setMessageId("id-" + body);
                message.getApplicationProperties().put("n", 7L);
                sent.add(message);
            }
            sender.sendMessages(sent);
            List<ServiceBusReceivedMessage> found = receive(receiver, 5);
            say("received", bodies(found));
            say("properties", List.of(found.get(0).getMessageId(), found.get(0).getApplicationProperties().get("n"),
                found.get(0).getSequenceNumber()));
            receiver.complete(found.get(0));
            receiver.abandon(found.get(1), new AbandonOptions().setPropertiesToModify(Map.of("tried", "once")));
            receiver.defer(found.get(2));
            receiver.deadLetter(found.get(3), new DeadLetterOptions().setDeadLetterReason("bad")
                .setDeadLetterErrorDescription("no amount"));
            OffsetDateTime until = receiver.renewMessageLock(found.get(4));
            say("renewed", !until.isBefore(found.get(4).getEnqueuedTime()));
            receiver.complete(found.get(4));
            ServiceBusReceivedMessage again = receive(receiver, 1).get(0);
            say("again", List.of(again.getBody().toString(), again.getDeliveryCount(),
                again.getApplicationProperties().get("tried")));
            receiver.complete(again);
            say("peeked", bodies(receiver.peekMessages(5, 1)));
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(found.get(2).getSequenceNumber());
            say("deferred", deferred.getBody());
            receiver.complete(deferred);
            try {
                receiver.receiveDeferredMessage(found.get(2).getSequenceNumber());
            } catch (ServiceBusException error) {
                say("gone", error.getReason());
            }
            ServiceBusReceivedMessage letter = receive(dead, 1).get(0);
            say("dead", List.of(letter.getBody().toString(), letter.getDeadLetterReason(),
                letter.getDeadLetterErrorDescription()));
        }
    }

    private static void later(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
             ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").disableAutoComplete()
                 .buildClient()) {
            long never = sender.scheduleMessage(new ServiceBusMessage("never"), OffsetDateTime.now().plusHours(1));
            sender.scheduleMessage(new ServiceBusMessage("soon"), OffsetDateTime.now().plus(Duration.ofMillis(500)));
            sender.cancelScheduledMessage(never);
            List<ServiceBusReceivedMessage> found = receive(receiver, 1);
            say("scheduled", bodies(found));
            receiver.complete(found.get(0));
        }
    }

    private static void session(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = builder.sender().queueName("sessions").buildClient();
             ServiceBusSessionReceiverClient sessions = builder.sessionReceiver().queueName("sessions")
                 .disableAutoComplete().buildClient()) {
            for (String id : List.of("a", "b", "a")) {
                sender.sendMessage(new ServiceBusMessage("of " + id).setSessionId(id));
            }
            try (ServiceBusReceiverClient receiver = sessions.acceptNextSession()) {
                receiver.setSessionState("half way".getBytes());
                receiver.renewSessionLock();
                List<ServiceBusReceivedMessage> found = receive(receiver, 2);
                say("session", List.of(receiver.getSessionId(), new String(receiver.getSessionState()),
                    bodies(found)));
                found.forEach(receiver::complete);
            }
            try (ServiceBusReceiverClient receiver = sessions.acceptSession("b")) {
                List<ServiceBusReceivedMessage> found = receive(receiver, 1);
                say("other session", bodies(found));
                receiver.complete(found.get(0));
            }
        }
    }

    private static void subscription(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = builder.sender().topicName("news").buildClient();
             ServiceBusReceiverClient receiver = builder.receiver().topicName("news").subscriptionName("all")
                 .disableAutoComplete().buildClient()) {
            sender.sendMessage(new ServiceBusMessage("headline"));
            List<ServiceBusReceivedMessage> found = receive(receiver, 1);
            say("subscription", bodies(found));
            receiver.complete(found.get(0));
        }
    }
}
