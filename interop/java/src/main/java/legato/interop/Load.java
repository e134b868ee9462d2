package legato.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.qpid.jms.JmsConnectionFactory;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

/**
 * Load of a benchmark: sends durable messages through Apache Qpid JMS as fast as it can, and prints one line of JSON with
 * how many there were and when they began and ended, in seconds.
 *
 * <p>Arguments: {@code URL WHAT QUEUE THREADS WARM_UP COUNT SIZE}. What is {@code sync}, where each thread sends one
 * message after the other; {@code commit}, where it commits after each; or {@code async}, where one thread sends with a
 * completion listener while a listener of another connection receives. Each thread has a connection of its own, and
 * sends its part of COUNT, after its part of WARM_UP, which does not count.
 */
public final class Load {
    private static final int WINDOW = 2000;
    private static final long WAIT_S = 600;

    private Load() {
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[0]);
        String queue = arguments[2];
        int threads = Integer.parseInt(arguments[3]);
        int warmUp = Integer.parseInt(arguments[4]) / threads;
        int count = Integer.parseInt(arguments[5]) / threads;
        byte[] body = new byte[Integer.parseInt(arguments[6])];
        if (arguments[1].equals("async")) {
            asynchronously(factory, queue, warmUp, body);
            print(count, asynchronously(factory, queue, count, body));
        } else {
            boolean transacted = arguments[1].equals("commit");
            inTurn(factory, queue, threads, warmUp, body, transacted);
            print((long) count * threads, inTurn(factory, queue, threads, count, body, transacted));
        }
    }

    private static void print(long count, long nanoseconds) {
        System.out.printf("{\"started\": 0, \"ended\": %.9f, \"count\": %d}%n", nanoseconds / 1e9, count);
    }

    /** One message after the other in each thread; how long it took, without connecting. */
    private static long inTurn(JmsConnectionFactory factory, String queue, int threads, int count, byte[] body,
            boolean transacted) throws Exception {
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch begin = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            Thread thread = new Thread(() -> {
                try (Connection connection = factory.createConnection();
                        Session session = connection.createSession(transacted,
                                transacted ? Session.SESSION_TRANSACTED : Session.AUTO_ACKNOWLEDGE);
                        MessageProducer producer = session.createProducer(session.createQueue(queue))) {
                    connection.start();
                    ready.countDown();
                    begin.await();
                    for (int sent = 0; sent < count; sent++) {
                        producer.send(message(session, body));
                        if (transacted) {
                            session.commit();
                        }
                    }
                } catch (Exception e) {
                    failure.compareAndSet(null, e);
                    ready.countDown();
                }
            });
            thread.start();
            running.add(thread);
        }
        ready.await();
        long began = System.nanoTime();
        begin.countDown();
        for (Thread thread : running) {
            thread.join();
        }
        long took = System.nanoTime() - began;
        rethrow(failure);
        return took;
    }

    /** One producer with up to {@value #WINDOW} sends under way, and one listener; until all were confirmed and received. */
    private static long asynchronously(JmsConnectionFactory factory, String queue, int count, byte[] body)
            throws Exception {
        Semaphore window = new Semaphore(WINDOW);
        CountDownLatch confirmed = new CountDownLatch(count);
        CountDownLatch received = new CountDownLatch(count);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                window.release();
                confirmed.countDown();
            }

            @Override
            public void onException(Message message, Exception e) {
                failure.compareAndSet(null, e);
                onCompletion(message);
            }
        };
        try (Connection receiving = factory.createConnection();
                Session receiver = receiving.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = receiver.createConsumer(receiver.createQueue(queue));
                Connection sending = factory.createConnection();
                Session session = sending.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            consumer.setMessageListener(message -> received.countDown());
            sending.start();
            receiving.start();
            long began = System.nanoTime();
            for (int sent = 0; sent < count; sent++) {
                window.acquire();
                producer.send(message(session, body), listener);
            }
            if (!confirmed.await(WAIT_S, TimeUnit.SECONDS) || !received.await(WAIT_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException(confirmed.getCount() + " sends were not confirmed, "
                        + received.getCount() + " messages not received");
            }
            rethrow(failure);
            return System.nanoTime() - began;
        }
    }

    private static BytesMessage message(Session session, byte[] body) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        return message;
    }

    private static void rethrow(AtomicReference<Throwable> failure) {
        if (failure.get() != null) {
            throw new IllegalStateException("a send failed", failure.get());
        }
    }
}
