// Logs in with rhea, sends a message to a queue and receives it; prints "done", or "denied" and why.
//
// Arguments: HOST:PORT AUTHORITIES MECHANISM USER PASSWORD QUEUE [CERTIFICATE]; files are PEM.
'use strict';

const fs = require('node:fs');
const rhea = require('rhea');

const [address, authorities, mechanism, user, password, queue, certificate] = process.argv.slice(2);
const [host, port] = address.split(':');
const options = {
    host, port, transport: 'tls', servername: 'localhost', ca: fs.readFileSync(authorities), reconnect: false,
};
if (certificate) {
    options.key = options.cert = fs.readFileSync(certificate);
}
if (mechanism === 'PLAIN') {
    Object.assign(options, { username: user, password });
} else if (mechanism === 'XOAUTH2') {
    Object.assign(options, { username: user, token: password });
} else {
    options.enable_sasl_external = true;
}

function end(said) {
    console.log(said);
    process.exit(0);
}

const failed = (what) => (context) => {
    const error = context.error || (context.sender || context.receiver || context.connection).error || {};
    end(`denied\t${what}: ${error.condition || ''} ${error.description || error.message || error}`);
};

const container = rhea.create_container();
for (const what of ['connection_error', 'session_error', 'sender_error', 'receiver_error', 'disconnected', 'rejected']) {
    container.on(what, failed(what));
}
container.once('sendable', (context) => context.sender.send({ body: 'hello' }));
container.once('accepted', (context) => context.connection.open_receiver(queue));
container.once('message', (context) => {
    context.delivery.accept();
    end('done');
});
setTimeout(() => end('nothing came'), 60000);
container.connect(options).open_sender(queue);
