import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends numbered records to a topic of Kafka at a steady rate, as {@code bench.rawclient latency} sends messages: says
 * {@code ready}, begins on a line of input, and prints the instant at which it began (CLOCK_MONOTONIC, in seconds).
 *
 * <p>Arguments: {@code SERVERS TOPIC RATE COUNT SIZE}. The key of a record is its number.
 */
public final class KafkaRate {
    private KafkaRate() {
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        double rate = Double.parseDouble(arguments[2]);
        int count = Integer.parseInt(arguments[3]);
        byte[] value = new byte[Integer.parseInt(arguments[4])];
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        AtomicLong failed = new AtomicLong();
        long began;
        try (KafkaProducer<String, byte[]> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            System.out.println("ready");
            System.in.read();
            began = System.nanoTime();
            System.out.printf("{\"started\": %.9f}%n", began / 1e9);
            for (int number = 0; number < count; number++) {
                long due = began + (long) (number / rate * 1e9);
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                producer.send(new ProducerRecord<>(topic, Integer.toString(number), value), (metadata, error) -> {
                    if (error != null) {
                        failed.incrementAndGet();
                    }
                });
            }
        }
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " records were not stored");
        }
    }
}
