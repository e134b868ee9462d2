package legato.interop;

import org.apache.qpid.jms.JmsConnectionFactory;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

/**
 * Logs in, sends a message to a queue and receives it; prints {@code done}, or which exception came.
 *
 * <p>Arguments: {@code URL USER PASSWORD QUEUE}; a user or password of {@code -} is none.
 */
public final class Logins {
    private static final long WAIT_MS = 20_000;

    private Logins() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[0]);
        if (!arguments[1].equals("-")) {
            factory.setUsername(arguments[1]);
        }
        if (!arguments[2].equals("-")) {
            factory.setPassword(arguments[2]);
        }
        try (Connection connection = factory.createConnection(); Session session = connection.createSession()) {
            connection.start();
            session.createProducer(session.createQueue(arguments[3])).send(session.createTextMessage("hello"));
            try (MessageConsumer consumer = session.createConsumer(session.createQueue(arguments[3]))) {
                TextMessage message = (TextMessage) consumer.receive(WAIT_MS);
                System.out.println(message == null ? "nothing came" : "done");
            }
        } catch (JMSSecurityException error) {
            System.out.println("JMSSecurityException\t" + error.getMessage());
        } catch (JMSException error) {
            System.out.println(error.getClass().getSimpleName() + "\t" + error.getMessage());
        }
    }
}
