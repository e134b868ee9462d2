package legato.interop;

import java.io.OutputStream;
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
 * <p>Arguments: {@code send-and-receive URL COUNT} or {@code transfer URL COUNT}. The first prints {@code sent NUMBER} when
 * a send has returned, and {@code received NUMBER DELIVERY-COUNT} for each delivery; it ends when all have come. The
 * second moves messages from one queue to another, a transaction each; it prints {@code sent NUMBER} when a commit has
 * returned, and in the end {@code received NUMBER DELIVERY-COUNT} for each message of the second queue.
 */
public final class Failover {
    private static final long WAIT_MS = 60_000;
    private static final long QUIET_MS = 2000;
    private static final String NUMBER = "number";
    private static final String QUEUE = "interop.failover";
    private static final String TARGET = "interop.failover.target";

    private Failover() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[1]);
        int count = Integer.parseInt(arguments[2]);
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        if (arguments[0].equals("transfer")) {
            send(factory, count, new PrintStream(OutputStream.nullOutputStream()));
            transfer(factory, output);
            receive(factory, TARGET, count, output);
        } else {
            Thread sender = new Thread(() -> send(factory, count, output));
            sender.setDaemon(true);
            sender.start();
            receive(factory, QUEUE, count, output);
            sender.join(WAIT_MS);
        }
        // A client that still tries to reconnect has threads of its own.
        System.exit(0);
    }

    private static void send(JmsConnectionFactory factory, int count, PrintStream output) {
        try (Connection connection = factory.createConnection(); Session session = connection.createSession();
                MessageProducer producer = session.createProducer(session.createQueue(QUEUE))) {
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

    /** Until nothing comes any more. */
    private static void transfer(JmsConnectionFactory factory, PrintStream output) throws JMSException {
        try (Connection connection = factory.createConnection();
                Session session = connection.createSession(Session.SESSION_TRANSACTED);
                MessageConsumer consumer = session.createConsumer(session.createQueue(QUEUE));
                MessageProducer producer = session.createProducer(session.createQueue(TARGET))) {
            connection.start();
            for (Message message = consumer.receive(WAIT_MS); message != null; message = consumer.receive(QUIET_MS)) {
                try {
                    producer.send(message);
                    session.commit();
                    output.println("sent " + message.getIntProperty(NUMBER));
                } catch (JMSException error) {
                    // Lost with its broker, whatever the client thinks of its outcome: what did not take place comes again.
                    session.rollback();
                }
            }
        }
    }

    private static void receive(JmsConnectionFactory factory, String queue, int count, PrintStream output) throws JMSException {
        BitSet seen = new BitSet();
        try (Connection connection = factory.createConnection(); Session session = connection.createSession();
                MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
            connection.start();
            long waitMs = WAIT_MS;
            for (Message message = consumer.receive(waitMs); message != null; message = consumer.receive(waitMs)) {
                int number = message.getIntProperty(NUMBER);
                seen.set(number);
                output.println("received " + number + " " + message.getIntProperty("JMSXDeliveryCount"));
                waitMs = seen.cardinality() < count ? WAIT_MS : QUIET_MS;
            }
        }
    }
}
