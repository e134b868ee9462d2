package legato.interop;

import java.util.ArrayList;
import java.util.List;

import org.apache.qpid.jms.JmsConnectionFactory;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

/**
 * Takes more of something than its user may have; prints which exception came, and {@code done} if what it had before
 * goes on to work and there is room again once it has let go.
 *
 * <p>Arguments: {@code URL USER PASSWORD WHAT}, which is connections, links or messages.
 */
public final class Limits {
    private static final long WAIT_MS = 60_000;
    private static final int MOST = 50;
    private static final int MESSAGES = 60;

    private Limits() {
    }

    /** Takes one more, and gives what it took. */
    private interface Taking {
        AutoCloseable more() throws JMSException;
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[1], arguments[2], arguments[0]);
        String queue = "limits." + arguments[3];
        try (Connection connection = factory.createConnection(); Session session = connection.createSession()) {
            connection.start();
            switch (arguments[3]) {
                case "connections" -> exceed(() -> {
                    Connection another = factory.createConnection();
                    another.start();
                    return another;
                });
                case "links" -> exceed(() -> session.createProducer(session.createQueue(queue)));
                default -> {
                }
            }
            int count = arguments[3].equals("messages") ? MESSAGES : 1;
            long began = System.nanoTime();
            try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
                for (int number = 0; number < count; number++) {
                    producer.send(session.createTextMessage("hello " + number));
                }
            }
            long took = (System.nanoTime() - began) / 1_000_000;
            try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
                for (int number = 0; number < count; number++) {
                    if (consumer.receive(WAIT_MS) == null) {
                        System.out.println("nothing came");
                        return;
                    }
                }
            }
            if (count > 1) {
                System.out.println("sent in " + took + " ms");
            }
        }
        System.out.println("done");
    }

    private static void exceed(Taking taking) throws Exception {
        List<AutoCloseable> taken = new ArrayList<>();
        try {
            for (int number = 0; number < MOST; number++) {
                taken.add(taking.more());
            }
            System.out.println("no exception");
        } catch (JMSException error) {
            System.out.println(error.getClass().getSimpleName() + "\t" + error.getMessage() + "\t" + error.getCause());
        }
        System.out.println("had " + taken.size());
        for (AutoCloseable each : taken) {
            each.close();
        }
        taking.more().close();
    }
}
