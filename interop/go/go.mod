module legato/interop

go 1.21

require github.com/Azure/go-amqp v1.4.0
