package legato.interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.BitSet;

import org.apache.qpid.jms.JmsConnectionFactory;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

/**
 * Sends and receives persistent messages, one after the other, through whatever happens to the brokers.
 *
 * <p>Arguments: a failover URL, a queue and how many messages. Prints {@code sent NUMBER} when a send has returned, and
 * {@code received NUMBER DELIVERY-COUNT} for each delivery; ends when all have come.
 */
public final class Failover {
    private static final long WAIT_MS = 60_000;
    private static final String NUMBER = "number";

    private Failover() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[0]);
        String queue = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        Thread sender = new Thread(() -> send(factory, queue, count, output));
        sender.setDaemon(true);
        sender.start();
        receive(factory, queue, count, output);
        sender.join(WAIT_MS);
        // A client that still tries to reconnect has threads of its own.
        System.exit(0);
    }

    private static void send(JmsConnectionFactory factory, String queue, int count, PrintStream output) {
        try (Connection connection = factory.createConnection(); Session session = connection.createSession();
                MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            for (int number = 0; number < count; number++) {
                Message message = session.createTextMessage("message " + number);
                message.setIntProperty(NUMBER, number);
                producer.send(message);
                output.println("sent " + number);
            }
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void receive(JmsConnectionFactory factory, String queue, int count, PrintStream output) throws JMSException {
        BitSet seen = new BitSet();
        try (Connection connection = factory.createConnection(); Session session = connection.createSession();
                MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
            connection.start();
            while (seen.cardinality() < count) {
                Message message = consumer.receive(WAIT_MS);
                if (message == null) {
                    throw new IllegalStateException("only " + seen.cardinality() + " of " + count + " messages came");
                }
                int number = message.getIntProperty(NUMBER);
                seen.set(number);
                output.println("received " + number + " " + message.getIntProperty("JMSXDeliveryCount"));
            }
        }
    }
}
