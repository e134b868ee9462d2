package legato.interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.proton.amqp.Binary;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageEOFException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;

/**
 * Sends messages of every type, receives them, or sends on what it receives, and prints what it saw of each.
 *
 * <p>Arguments: {@code send URL QUEUE}, {@code receive URL QUEUE COUNT} or {@code forward URL FROM TO COUNT}. A
 * message's description is one line, fields divided by tabs; {@code interop/descriptions.py} writes the same.
 */
public final class RoundTrip {
    private static final long WAIT_MS = 20_000;
    private static final String INDEX = "index";

    private final Session session;
    private final PrintStream output;

    private RoundTrip(Session session, PrintStream output) {
        this.session = session;
        this.output = output;
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[1]);
        factory.setForceSyncSend(true);
        try (Connection connection = factory.createConnection(); Session session = connection.createSession()) {
            connection.start();
            RoundTrip trip = new RoundTrip(session, new PrintStream(System.out, true, StandardCharsets.US_ASCII));
            switch (arguments[0]) {
                case "send" -> trip.send(arguments[2]);
                case "receive" -> trip.receive(arguments[2], Integer.parseInt(arguments[3]));
                case "forward" -> trip.forward(arguments[2], arguments[3], Integer.parseInt(arguments[4]));
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }

    private void send(String queue) throws JMSException, IOException {
        try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
            int index = 0;
            for (Message message : everyType()) {
                setHeaders(message, index);
                setProperties(message, index);
                int mode = index % 2 == 0 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
                producer.send(message, mode, index % 10, 0);
                output.println(describe(message));
                index++;
            }
        }
    }

    private List<Message> receive(String queue, int count) throws JMSException, IOException {
        List<Message> messages = new ArrayList<>();
        try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
            while (messages.size() < count) {
                Message message = consumer.receive(WAIT_MS);
                if (message == null) {
                    throw new IllegalStateException("only " + messages.size() + " of " + count + " messages came");
                }
                messages.add(message);
                output.println(describe(message));
            }
        }
        return messages;
    }

    private void forward(String from, String to, int count) throws JMSException, IOException {
        List<Message> messages = receive(from, count);
        try (MessageProducer producer = session.createProducer(session.createQueue(to))) {
            for (Message message : messages) {
                producer.send(message, message.getJMSDeliveryMode(), message.getJMSPriority(), 0);
            }
        }
    }

    private List<Message> everyType() throws JMSException {
        List<Message> all = new ArrayList<>();
        all.add(session.createMessage());
        all.add(session.createTextMessage("plain text"));
        all.add(session.createTextMessage("\u00fcber \u20ac \ud83d\ude00 \u0000 \n"));
        all.add(session.createTextMessage());
        all.add(session.createTextMessage("long ".repeat(60_000)));
        BytesMessage bytes = session.createBytesMessage();
        for (int value = 0; value < 256; value++) {
            bytes.writeByte((byte) value);
        }
        bytes.writeUTF("modified \u0000 UTF");
        bytes.writeDouble(-0.0);
        all.add(bytes);
        all.add(session.createBytesMessage());
        all.add(filled(session.createMapMessage()));
        all.add(session.createMapMessage());
        all.add(filled(session.createStreamMessage()));
        all.add(session.createStreamMessage());
        all.add(session.createObjectMessage(new BigDecimal("1.50")));
        all.add(session.createObjectMessage(new int[] {1, 2, 3}));
        all.add(session.createObjectMessage());
        return all;
    }

    private static MapMessage filled(MapMessage map) throws JMSException {
        map.setBoolean("boolean", true);
        map.setByte("byte", Byte.MIN_VALUE);
        map.setShort("short", Short.MAX_VALUE);
        map.setChar("char", '\uffff');
        map.setInt("int", Integer.MIN_VALUE);
        map.setLong("long", Long.MAX_VALUE);
        map.setFloat("float", Float.MIN_VALUE);
        map.setDouble("double", Double.MAX_VALUE);
        map.setString("string", "a \u20ac");
        map.setString("null", null);
        map.setBytes("bytes", new byte[] {0, 1, -1});
        return map;
    }

    private static StreamMessage filled(StreamMessage stream) throws JMSException {
        stream.writeBoolean(false);
        stream.writeByte((byte) 127);
        stream.writeShort(Short.MIN_VALUE);
        stream.writeChar('x');
        stream.writeInt(Integer.MAX_VALUE);
        stream.writeLong(Long.MIN_VALUE);
        stream.writeFloat(Float.NEGATIVE_INFINITY);
        stream.writeDouble(Double.MIN_VALUE);
        stream.writeString("");
        stream.writeString(null);
        stream.writeBytes(new byte[0]);
        stream.writeBytes(new byte[] {9, 8});
        return stream;
    }

    private void setHeaders(Message message, int index) throws JMSException {
        message.setJMSType(index % 3 == 0 ? null : "type " + index);
        if (index % 4 == 1) {
            message.setJMSCorrelationID("correlation " + index);
        } else if (index % 4 == 2) {
            message.setJMSCorrelationIDAsBytes(new byte[] {(byte) index, 0, -1});
        } else if (index % 4 == 3) {
            message.setJMSCorrelationID("ID:" + index);
        }
        if (index % 3 == 1) {
            message.setJMSReplyTo(session.createQueue("replies." + index));
        } else if (index % 3 == 2) {
            message.setJMSReplyTo(session.createTopic("replies." + index));
        }
    }

    private static void setProperties(Message message, int index) throws JMSException {
        message.setIntProperty(INDEX, index);
        message.setBooleanProperty("boolean", index % 2 == 0);
        message.setByteProperty("byte", (byte) -index);
        message.setShortProperty("short", (short) (index * 1000));
        message.setIntProperty("int", -index);
        message.setLongProperty("long", Long.MIN_VALUE + index);
        message.setFloatProperty("float", 0.1f * index);
        message.setDoubleProperty("double", 0.1 * index);
        message.setStringProperty("string", "value \u20ac " + index);
        message.setStringProperty("nothing", null);
        if (index % 2 == 1) {
            message.setStringProperty("JMSXGroupID", "group " + index);
            message.setIntProperty("JMSXGroupSeq", index);
        }
    }

    private static String describe(Message message) throws JMSException, IOException {
        List<String> fields = new ArrayList<>();
        fields.add(Integer.toString(message.getIntProperty(INDEX)));
        fields.add("delivery-mode " + message.getJMSDeliveryMode());
        fields.add("priority " + message.getJMSPriority());
        fields.add("type " + value(message.getJMSType()));
        fields.add("correlation " + value(message.getJMSCorrelationID()));
        fields.add("reply-to " + destination(message));
        Map<String, String> properties = new TreeMap<>();
        for (String name : strings(message.getPropertyNames())) {
            // What begins so says how the client encodes the message, and does not travel.
            if (!name.equals("JMSXDeliveryCount") && !name.startsWith("JMS_AMQP_")) {
                properties.put(name, value(message.getObjectProperty(name)));
            }
        }
        properties.forEach((name, value) -> fields.add("property " + quoted(name) + " " + value));
        fields.add(body(message));
        return String.join("\t", fields);
    }

    private static String destination(Message message) throws JMSException {
        if (message.getJMSReplyTo() instanceof Queue queue) {
            return "queue " + quoted(queue.getQueueName());
        }
        return message.getJMSReplyTo() instanceof Topic topic ? "topic " + quoted(topic.getTopicName()) : "null";
    }

    private static String body(Message message) throws JMSException, IOException {
        if (message instanceof TextMessage text) {
            return "text " + value(text.getText());
        }
        if (message instanceof BytesMessage bytes) {
            bytes.reset();
            byte[] content = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(content);
            return "bytes " + value(content);
        }
        if (message instanceof MapMessage map) {
            Map<String, String> values = new TreeMap<>();
            for (String name : strings(map.getMapNames())) {
                values.put(name, value(map.getObject(name)));
            }
            return "map " + pairs(values);
        }
        if (message instanceof StreamMessage stream) {
            stream.reset();
            List<String> values = new ArrayList<>();
            try {
                while (true) {
                    values.add(value(stream.readObject()));
                }
            } catch (MessageEOFException end) {
                stream.reset();
            }
            return "stream " + values;
        }
        return message instanceof ObjectMessage object ? "object " + object(object.getObject()) : "none";
    }

    /** What AMQP carries as a value is shown as one, anything else as Java serialises it. */
    private static String object(Object object) throws IOException {
        if (object instanceof Map<?, ?> map) {
            Map<String, String> values = new TreeMap<>();
            for (Map.Entry<?, ?> each : map.entrySet()) {
                values.put((String) each.getKey(), object(each.getValue()));
            }
            return pairs(values);
        }
        if (object instanceof List<?> list) {
            List<String> values = new ArrayList<>();
            for (Object each : list) {
                values.add(object(each));
            }
            return values.toString();
        }
        if (object instanceof Binary binary) {
            return value(Arrays.copyOfRange(binary.getArray(), binary.getArrayOffset(), binary.getArrayOffset() + binary.getLength()));
        }
        if (object instanceof BigDecimal || object instanceof int[]) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (ObjectOutputStream stream = new ObjectOutputStream(bytes)) {
                stream.writeObject((Serializable) object);
            }
            return "serialized " + HexFormat.of().formatHex(bytes.toByteArray());
        }
        return value(object);
    }

    private static String pairs(Map<String, String> values) {
        return values.entrySet().stream().map(each -> quoted(each.getKey()) + "=" + each.getValue()).toList().toString();
    }

    private static String value(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof String string) {
            return "string " + quoted(string);
        }
        if (value instanceof Character character) {
            return "char " + (int) character;
        }
        if (value instanceof Float number) {
            return String.format("float %08x", Float.floatToRawIntBits(number));
        }
        if (value instanceof Double number) {
            return String.format("double %016x", Double.doubleToRawLongBits(number));
        }
        if (value instanceof byte[] bytes) {
            return "bytes " + HexFormat.of().formatHex(bytes);
        }
        String kind = value instanceof Integer ? "int" : value.getClass().getSimpleName().toLowerCase();
        return kind + " " + value;
    }

    private static String quoted(String text) {
        StringBuilder result = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each < 0x20 || each > 0x7e || each == '"' || each == '\\') {
                result.append(String.format("\\u%04x", (int) each));
            } else {
                result.append(each);
            }
        }
        return result.append('"').toString();
    }

    private static List<String> strings(java.util.Enumeration<?> names) {
        return Collections.list(names).stream().map(String.class::cast).toList();
    }
}
