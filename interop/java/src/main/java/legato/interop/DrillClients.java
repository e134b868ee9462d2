package legato.interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.qpid.jms.JmsConnectionFactory;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

/**
 * Clients of a drill beside the Python ones: each puts on record what it was told, as {@code legato/drill/records.py} says,
 * and goes on from there if it was killed.
 *
 * <p>Arguments: {@code URL DIRECTORY RATE WORK:NAME:FLOW ...}, where a work is {@code send}, {@code client}, {@code
 * transacted} or {@code subscribe}. They go on until standard input ends; those that receive then wait until nothing
 * comes any more. Standard output has a JSON object a line, as {@code legato/drill/reports.py} says.
 */
public final class DrillClients {
    private static final long FIRST_WAIT_MS = 250;
    private static final long NEXT_WAIT_MS = 20;
    private static final long QUIET_MS = 5000;
    private static final long REPORT_MS = 200;
    private static final int MESSAGES_AT_ONCE = 20;
    private static final int PREFETCH = 100;
    private static final String PADDING = ".".repeat(200);

    private final JmsConnectionFactory factory;
    private final Path directory;
    private final double rate;
    private final AtomicLong stored = new AtomicLong();
    private final AtomicLong seen = new AtomicLong();
    private final AtomicLong rolledBack = new AtomicLong();
    private final CountDownLatch stop = new CountDownLatch(1);
    private final CountDownLatch ready;
    private volatile String failure;

    private DrillClients(String url, Path directory, double rate, int clients) {
        this.factory = new JmsConnectionFactory(url + "&jms.prefetchPolicy.all=" + PREFETCH);
        this.directory = directory;
        this.rate = rate;
        this.ready = new CountDownLatch(clients);
    }

    public static void main(String[] arguments) throws Exception {
        String[] works = Arrays.copyOfRange(arguments, 3, arguments.length);
        DrillClients clients =
                new DrillClients(arguments[0], Path.of(arguments[1]), Double.parseDouble(arguments[2]), works.length);
        // A client that still tries to reconnect has threads of its own.
        System.exit(clients.run(works) ? 0 : 1);
    }

    private boolean run(String[] works) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (String work : works) {
            String[] parts = work.split(":");
            threads.add(new Thread(() -> work(parts[0], parts[1], parts[2]), parts[1]));
        }
        Thread waiting = new Thread(this::waitForEnd, "stop");
        waiting.setDaemon(true);
        waiting.start();
        threads.forEach(Thread::start);
        ready.await();
        say("\"report\":\"Ready\"");
        while (threads.stream().anyMatch(Thread::isAlive)) {
            tell();
            Thread.sleep(REPORT_MS);
        }
        tell();
        say(failure == null ? "\"report\":\"Finished\"" : "\"report\":\"Failed\",\"reason\":\"" + failure.replaceAll("[\"\\\\\n]", " ") + "\"");
        return failure == null;
    }

    private void tell() {
        say("\"report\":\"Totals\",\"stored\":" + stored + ",\"seen\":" + seen + ",\"rolled_back\":" + rolledBack);
    }

    private static synchronized void say(String fields) {
        System.out.println("{" + fields + "}");
        System.out.flush();
    }

    private void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException ended) {
            // That is an end too.
        }
        stop.countDown();
    }

    private void work(String work, String name, String flow) {
        boolean transacted = work.equals("transacted");
        String head = work.equals("send")
                ? "{\"type\":\"Producing\",\"producer\":\"" + name + "\",\"flow\":\"" + flow + "\",\"numbered\":false}"
                : "{\"type\":\"Consuming\",\"subscription\":\"" + flow + (work.equals("subscribe") ? "/" + name : "")
                        + "\",\"flow\":\"" + flow + "\",\"told\":" + transacted + ",\"exactly_once\":" + transacted + "}";
        Path file = directory.resolve(name + ".records");
        boolean again = Files.exists(file);
        Connecting connect = () -> {
            Connection connection = factory.createConnection();
            if (work.equals("subscribe")) {
                connection.setClientID(flow + "-" + name);
            }
            return connection;
        };
        try (BufferedWriter record = Files.newBufferedWriter(
                file, StandardCharsets.US_ASCII, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            write(record, again ? "again" : head);
            if (work.equals("send")) {
                try (Connection connection = connect.get()) {
                    send(connection.createSession(), record, name, flow, again ? lastNumber(file) : 0);
                }
            } else {
                Consumption consumption = new Consumption(connect, work, name, flow);
                ready.countDown();
                receive(consumption, record, transacted);
                consumption.connection.close();
            }
        } catch (JMSException | IOException | InterruptedException error) {
            failure = name + ": " + error;
            ready.countDown();
            stop.countDown();
        }
    }

    /** Makes a connection. */
    private interface Connecting {
        Connection get() throws JMSException;
    }

    /** A connection and a session with its consumer. */
    private static final class Consumption {
        private final Connecting connect;
        private Connection connection;
        private final String work;
        private final String name;
        private final String flow;
        private Session session;
        private MessageConsumer consumer;

        Consumption(Connecting connect, String work, String name, String flow) throws JMSException {
            this.connect = connect;
            this.connection = connect.get();
            this.connection.start();
            this.work = work;
            this.name = name;
            this.flow = flow;
            begin();
        }

        private void begin() throws JMSException {
            session = connection.createSession(
                    work.equals("transacted") ? Session.SESSION_TRANSACTED : Session.CLIENT_ACKNOWLEDGE);
            consumer = work.equals("subscribe")
                    ? session.createDurableConsumer(session.createTopic(flow), name)
                    : session.createConsumer(session.createQueue(flow));
        }

        /**
         * Begins anew. After a failover, a commit() of Qpid JMS 2.10 that fails gives what was prefetched back to the
         * broker, and receive() hands it out all the same; its acknowledgements then go nowhere.
         */
        void renew() throws JMSException {
            try {
                session.close();
            } catch (JMSException error) {
                // Nor can it close a session while it connects again; what it leaves behind ends with the connection.
                connection.close();
                connection = connect.get();
                connection.start();
            }
            begin();
        }
    }

    /** The highest number that the producer put on record before it was killed. */
    private static long lastNumber(Path file) throws IOException {
        long last = 0;
        for (String line : Files.readAllLines(file, StandardCharsets.US_ASCII)) {
            if (line.startsWith("sending ")) {
                last = Math.max(last, Long.parseLong(line.substring("sending ".length())));
            }
        }
        return last;
    }

    private void send(Session session, BufferedWriter record, String name, String flow, long last)
            throws JMSException, IOException, InterruptedException {
        MessageProducer producer = session.createProducer(session.createQueue(flow));
        ready.countDown();
        for (long number = last + 1; !stop.await((long) (1e6 / rate), TimeUnit.MICROSECONDS); number++) {
            write(record, "sending " + number);
            try {
                producer.send(session.createTextMessage(name + " " + number + " " + PADDING));
                stored.incrementAndGet();
                write(record, "stored " + number);
            } catch (JMSException error) {
                write(record, "unsure " + number);
            }
        }
    }

    private void receive(Consumption consumption, BufferedWriter record, boolean transacted)
            throws JMSException, IOException {
        long quietSince = System.currentTimeMillis();
        while (stop.getCount() > 0 || System.currentTimeMillis() - quietSince < QUIET_MS) {
            List<String> received = new ArrayList<>();
            Message last = null;
            Message message = consumption.consumer.receive(FIRST_WAIT_MS);
            while (message != null) {
                String[] words = ((TextMessage) message).getText().split(" ");
                String identity = words[0] + " " + words[1];
                write(record, "seen " + identity + (message.getJMSRedelivered() ? " 1" : " 0"));
                seen.incrementAndGet();
                received.add(identity);
                last = message;
                message = received.size() < MESSAGES_AT_ONCE ? consumption.consumer.receive(NEXT_WAIT_MS) : null;
            }
            if (last == null) {
                continue;
            }
            quietSince = System.currentTimeMillis();
            if (transacted) {
                commit(consumption, record, received);
            } else {
                acknowledge(consumption.session, last);
            }
        }
    }

    private void commit(Consumption consumption, BufferedWriter record, List<String> received)
            throws JMSException, IOException {
        for (String identity : received) {
            write(record, "trying " + identity);
        }
        String told = "done ";
        try {
            consumption.session.commit();
        } catch (JMSException error) {
            // Lost with its broker, whatever became of it: what did not take place comes again.
            told = "maybe ";
            rolledBack.incrementAndGet();
            consumption.renew();
        }
        for (String identity : received) {
            write(record, told + identity);
        }
    }

    private static void acknowledge(Session session, Message last) throws JMSException {
        try {
            last.acknowledge();
        } catch (JMSException error) {
            session.recover();
        }
    }

    /** What is written survives this process. */
    private static void write(BufferedWriter record, String line) throws IOException {
        record.write(line);
        record.newLine();
        record.flush();
    }
}
