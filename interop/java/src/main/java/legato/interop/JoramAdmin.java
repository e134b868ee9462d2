package legato.interop;

import java.util.HashMap;
import java.util.Map;

import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NameNotFoundException;
import javax.naming.NamingException;

import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.objectweb.jtests.jms.admin.Admin;

import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.Queue;

/** What the Joram tests ask of a provider: destinations and factories that point at the broker of `legato.url`. */
public final class JoramAdmin implements Admin {
    private final Map<String, Object> bound = new HashMap<>();

    @Override
    public String getName() {
        return "Legato";
    }

    @Override
    public Context createContext() throws NamingException {
        return new InitialContext(true) {
            @Override
            public Object lookup(String name) throws NamingException {
                Object found = bound.get(name);
                if (found == null) {
                    throw new NameNotFoundException(name);
                }
                return found;
            }
        };
    }

    @Override
    public void createConnectionFactory(String name) {
        bound.put(name, factory());
    }

    @Override
    public void createQueueConnectionFactory(String name) {
        bound.put(name, factory());
    }

    @Override
    public void createTopicConnectionFactory(String name) {
        bound.put(name, factory());
    }

    @Override
    public void createQueue(String name) {
        bound.put(name, new JmsQueue(name));
    }

    @Override
    public void createTopic(String name) {
        bound.put(name, new JmsTopic(name));
    }

    /** The tests use names again and want their queues empty. */
    @Override
    public void deleteQueue(String name) {
        Queue queue = (Queue) bound.remove(name);
        try (JMSContext context = factory().createContext(); JMSConsumer consumer = context.createConsumer(queue)) {
            while (consumer.receiveNoWait() != null) {
                // Each one received is one less for the next test.
            }
        }
    }

    @Override
    public void deleteTopic(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteConnectionFactory(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteQueueConnectionFactory(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteTopicConnectionFactory(String name) {
        bound.remove(name);
    }

    @Override
    public void startServer() {
        // One broker serves the whole run.
    }

    @Override
    public void stopServer() {
        // One broker serves the whole run.
    }

    @Override
    public void start() {
        // One broker serves the whole run.
    }

    @Override
    public void stop() {
        // One broker serves the whole run.
    }

    private static JmsConnectionFactory factory() {
        return new JmsConnectionFactory(System.getProperty("legato.url"));
    }
}
