// Logs in with go-amqp, sends a message to a queue and receives it; prints "done", or "denied" and why.
//
// Arguments: HOST:PORT AUTHORITIES MECHANISM USER PASSWORD QUEUE [CERTIFICATE]; files are PEM.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Printf("denied\t%v\n", err)
	} else {
		fmt.Println("done")
	}
}

func run(arguments []string) error {
	address, authorities, mechanism := arguments[0], arguments[1], arguments[2]
	user, password, queue := arguments[3], arguments[4], arguments[5]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	known, err := os.ReadFile(authorities)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(known)
	settings := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	if len(arguments) > 6 {
		certificate, err := tls.LoadX509KeyPair(arguments[6], arguments[6])
		if err != nil {
			return err
		}
		settings.Certificates = []tls.Certificate{certificate}
	}
	options := &amqp.ConnOptions{TLSConfig: settings}
	switch mechanism {
	case "PLAIN":
		options.SASLType = amqp.SASLTypePlain(user, password)
	case "EXTERNAL":
		options.SASLType = amqp.SASLTypeExternal("")
	case "XOAUTH2":
		options.SASLType = amqp.SASLTypeXOAUTH2(user, password, 65536)
	}
	conn, err := amqp.Dial(ctx, "amqps://"+address, options)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, queue, nil)
	if err != nil {
		return err
	}
	if err = sender.Send(ctx, amqp.NewMessage([]byte("hello")), nil); err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, queue, nil)
	if err != nil {
		return err
	}
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return receiver.AcceptMessage(ctx, message)
}
