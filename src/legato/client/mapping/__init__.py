"""Between messages of Jakarta Messaging and what AMQP carries; conditions of AMQP as errors."""
