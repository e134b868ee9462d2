'use strict';
// rhea as a client of a broker: one function per scenario. Prints one line per scenario, its fields divided by tabs:
// end NAME passed|failed MILLISECONDS TEXT

const assert = require('node:assert');
const rhea = require('rhea');

const port = Number(process.argv[2]);
const chosen = process.argv.slice(3);
const SCENARIO_TIMEOUT_MS = 20000;

/** Resolves with the context of the next such event; an error event of the same endpoint rejects. */
function next(emitter, event) {
    return new Promise((resolve, reject) => {
        emitter.once(event, resolve);
        for (const error of ['connection_error', 'session_error', 'sender_error', 'receiver_error']) {
            if (error !== event) {
                emitter.once(error, (context) => {
                    const at = context.receiver || context.sender || context.session || context.connection;
                    reject(new Error(`${error}: ${at.error && at.error.condition} ${at.error && at.error.description}`));
                });
            }
        }
    });
}

async function connect(options = {}) {
    const container = rhea.create_container();
    const connection = container.connect({ port, reconnect: false, ...options });
    await next(connection, 'connection_open');
    return connection;
}

async function close(connection) {
    const closed = next(connection, 'connection_close');
    connection.close();
    await closed;
}

async function openSender(connection, options) {
    const sender = connection.open_sender(options);
    await next(sender, 'sendable');
    return sender;
}

/** Collects messages; `take(n)` resolves with the next n contexts in the order of their arrival. */
class Inbox {
    constructor(receiver) {
        this.contexts = [];
        this.wakeUp = () => {};
        receiver.on('message', (context) => {
            this.contexts.push(context);
            this.wakeUp();
        });
    }

    async take(count) {
        while (this.contexts.length < count) {
            await new Promise((resolve) => { this.wakeUp = resolve; });
        }
        return this.contexts.splice(0, count);
    }
}

async function openReceiver(connection, options) {
    const receiver = connection.open_receiver(options);
    const inbox = new Inbox(receiver);
    await next(receiver, 'receiver_open');
    return { receiver, inbox };
}

const bodies = (contexts) => contexts.map((context) => context.message.body);

async function sendAll(sender, messages) {
    let settled = 0;
    const done = new Promise((resolve) => {
        sender.on('accepted', () => { if (++settled === messages.length) resolve(); });
    });
    for (const message of messages) {
        while (!sender.sendable()) {
            await next(sender, 'sendable');
        }
        sender.send(message);
    }
    await done;
}

const topic = (address, more = {}) => ({ address, capabilities: ['topic'], ...more });

const scenarios = {
    async send_and_receive() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.plain');
        const texts = Array.from({ length: 1000 }, (_, index) => `message ${index}`);
        await sendAll(sender, texts.map((body, index) => ({ body, message_id: index, durable: true })));
        const { inbox } = await openReceiver(connection, { source: 'rhea.plain', credit_window: 100 });
        assert.deepStrictEqual(bodies(await inbox.take(1000)), texts);
        await close(connection);
    },

    async types_pass_untouched() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.types');
        const sent = [
            { body: 'a text with \u20ac and \u{1f600}', application_properties: { text: 'x', number: 1.5, yes: true } },
            { body: rhea.message.data_section(Buffer.from([0, 1, 2, 255])), content_type: 'application/octet-stream' },
            { body: rhea.message.sequence_section(['one', 2, true]) },
            { body: { a: 1, nested: { list: [1, 2, 3] } }, message_annotations: { 'x-opt-mine': 'kept' } },
        ];
        await sendAll(sender, sent);
        const { inbox } = await openReceiver(connection, 'rhea.types');
        const got = (await inbox.take(sent.length)).map((context) => context.message);
        assert.strictEqual(got[0].body, sent[0].body);
        assert.deepStrictEqual(got[0].application_properties, sent[0].application_properties);
        assert.deepStrictEqual(Buffer.from(got[1].body.content), Buffer.from([0, 1, 2, 255]));
        assert.strictEqual(got[1].content_type, 'application/octet-stream');
        assert.deepStrictEqual(got[2].body.content, ['one', 2, true]);
        assert.deepStrictEqual(got[3].body, sent[3].body);
        assert.strictEqual(got[3].message_annotations['x-opt-mine'], 'kept');
        await close(connection);
    },

    async released_modified_and_rejected() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.outcomes');
        await sendAll(sender, [{ body: 'first' }, { body: 'second' }]);
        const { receiver, inbox } = await openReceiver(connection, { source: 'rhea.outcomes', credit_window: 0, autoaccept: false });
        // One at a time: rhea's own window would ask for the second message before it tells the outcome of the first.
        const takeOne = () => { receiver.add_credit(1); return inbox.take(1); };
        const [fresh] = await takeOne();
        assert.strictEqual(fresh.message.body, 'first');
        assert.ok(!fresh.message.delivery_count);
        fresh.delivery.release();
        const [released] = await takeOne();
        assert.strictEqual(released.message.body, 'first');
        assert.ok(!released.message.delivery_count, 'released does not count');
        released.delivery.modified({ delivery_failed: true, undeliverable_here: false });
        const [modified] = await takeOne();
        assert.strictEqual(modified.message.body, 'first');
        assert.strictEqual(modified.message.delivery_count, 1);
        modified.delivery.reject({ condition: 'mine:bad', description: 'not wanted' });
        const [following] = await takeOne();
        assert.strictEqual(following.message.body, 'second');
        following.delivery.accept();
        await close(connection);
    },

    async unsettled_returns_when_the_connection_drops() {
        const first = await connect();
        const sender = await openSender(first, 'rhea.dropped');
        await sendAll(sender, ['a', 'b', 'c'].map((body) => ({ body })));
        const dropped = await connect();
        const { inbox } = await openReceiver(dropped, { source: 'rhea.dropped', autoaccept: false });
        assert.deepStrictEqual(bodies(await inbox.take(3)), ['a', 'b', 'c']);
        dropped.socket.destroy();
        const again = await openReceiver(first, 'rhea.dropped');
        assert.deepStrictEqual(bodies(await again.inbox.take(3)), ['a', 'b', 'c']);
        await close(first);
    },

    async drain() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.drain');
        await sendAll(sender, ['one', 'two', 'three'].map((body) => ({ body })));
        const { receiver, inbox } = await openReceiver(connection, { source: 'rhea.drain', credit_window: 0 });
        const drained = next(receiver, 'receiver_drained');
        receiver.drain = true;
        receiver.add_credit(10);
        await drained;
        assert.deepStrictEqual(bodies(await inbox.take(3)), ['one', 'two', 'three']);
        const nothing = next(receiver, 'receiver_drained');
        receiver.drain = true;
        receiver.add_credit(5);
        await nothing;
        assert.strictEqual(inbox.contexts.length, 0);
        receiver.drain = false;
        receiver.add_credit(1);
        await sendAll(sender, [{ body: 'four' }]);
        assert.deepStrictEqual(bodies(await inbox.take(1)), ['four']);
        await close(connection);
    },

    async request_and_reply_through_a_dynamic_node() {
        const server = await connect();
        const replies = await openSender(server, { target: {} });
        const { receiver: requests } = await openReceiver(server, 'rhea.requests');
        requests.on('message', (context) => {
            const { body, reply_to, correlation_id } = context.message;
            replies.send({ to: reply_to, body: body.toUpperCase(), correlation_id });
        });
        const client = await connect();
        const { receiver, inbox } = await openReceiver(client, { source: { dynamic: true } });
        const reply_to = receiver.source.address;
        assert.ok(reply_to, 'the broker names the node');
        const sender = await openSender(client, 'rhea.requests');
        sender.send({ body: 'hello', reply_to, correlation_id: 'c-1' });
        const [{ message }] = await inbox.take(1);
        assert.strictEqual(message.body, 'HELLO');
        assert.strictEqual(message.correlation_id, 'c-1');
        await close(client);
        // The node ends with its link: the reply has nowhere to go.
        const refused = next(replies, 'rejected');
        replies.send({ to: reply_to, body: 'too late' });
        await refused;
        await close(server);
    },

    async topic_reaches_every_subscriber() {
        const connection = await connect();
        const subscribers = [];
        for (let index = 0; index < 3; index++) {
            subscribers.push(await openReceiver(connection, { source: topic('rhea.news') }));
        }
        const sender = await openSender(connection, { target: topic('rhea.news') });
        await sendAll(sender, [{ body: 'one' }, { body: 'two' }]);
        for (const { inbox } of subscribers) {
            assert.deepStrictEqual(bodies(await inbox.take(2)), ['one', 'two']);
        }
        await close(connection);
    },

    async durable_subscription() {
        const source = topic('rhea.durable', { durable: 2, expiry_policy: 'never' });
        const container_id = 'rhea-durable-client';
        let connection = await connect({ container_id });
        const sub = await openReceiver(connection, { name: 'mine', source });
        const detached = next(sub.receiver, 'receiver_close');
        sub.receiver.detach();
        await detached.catch(() => {});
        await close(connection);

        const publisher = await connect();
        const sender = await openSender(publisher, { target: topic('rhea.durable') });
        await sendAll(sender, [{ body: 'while away' }]);

        connection = await connect({ container_id });
        const back = await openReceiver(connection, { name: 'mine', source });
        assert.deepStrictEqual(bodies(await back.inbox.take(1)), ['while away']);
        const closed = next(back.receiver, 'receiver_close');
        back.receiver.close();
        await closed;
        await sendAll(sender, [{ body: 'after the end' }]);
        const anew = await openReceiver(connection, { name: 'mine', source });
        await sendAll(sender, [{ body: 'new' }]);
        assert.deepStrictEqual(bodies(await anew.inbox.take(1)), ['new'], 'closing the link ended the subscription');
        anew.receiver.close();
        await close(connection);
        await close(publisher);
    },

    async selector_on_a_queue() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.selected');
        const colours = ['red', 'green', 'red', 'blue'];
        await sendAll(sender, colours.map((colour, index) => ({ body: index, application_properties: { colour } })));
        const filter = rhea.filter.selector("colour = 'red'");
        const red = await openReceiver(connection, { source: { address: 'rhea.selected', filter } });
        assert.deepStrictEqual(bodies(await red.inbox.take(2)), [0, 2]);
        assert.ok(red.receiver.source.filter['jms-selector'], 'the broker says that it applies the filter');
        const rest = await openReceiver(connection, 'rhea.selected');
        assert.deepStrictEqual(bodies(await rest.inbox.take(2)), [1, 3]);
        await close(connection);
    },

    async invalid_selector_is_refused() {
        const connection = await connect();
        const filter = rhea.filter.selector('colour = = 1');
        const receiver = connection.open_receiver({ source: { address: 'rhea.selected', filter } });
        const { receiver: refused } = await next(receiver, 'receiver_error');
        assert.strictEqual(refused.error.condition, 'amqp:invalid-field');
        await close(connection);
    },

    async browse_leaves_messages() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.browsed');
        await sendAll(sender, ['one', 'two'].map((body) => ({ body })));
        const browser = await openReceiver(connection, { source: { address: 'rhea.browsed', distribution_mode: 'copy' } });
        assert.deepStrictEqual(bodies(await browser.inbox.take(2)), ['one', 'two']);
        const consumer = await openReceiver(connection, 'rhea.browsed');
        assert.deepStrictEqual(bodies(await consumer.inbox.take(2)), ['one', 'two']);
        await close(connection);
    },

    async reconnects_and_carries_on() {
        const connection = await connect({ reconnect: true, initial_reconnect_delay: 50 });
        const { inbox } = await openReceiver(connection, 'rhea.reconnected');
        const sender = await openSender(connection, 'rhea.reconnected');
        await sendAll(sender, [{ body: 'before' }]);
        assert.deepStrictEqual(bodies(await inbox.take(1)), ['before']);
        connection.on('disconnected', () => {});
        const reopened = next(connection, 'connection_open');
        const sendable = next(sender, 'sendable');
        connection.socket.destroy(new Error('cut'));
        await reopened;
        await sendable;
        sender.send({ body: 'after' });
        const seen = [];
        while (!seen.includes('after')) {
            seen.push(...bodies(await inbox.take(1)));
        }
        await close(connection);
    },

    async presettled() {
        const connection = await connect();
        const sender = await openSender(connection, { target: 'rhea.presettled', snd_settle_mode: 1 });
        for (let index = 0; index < 100; index++) {
            sender.send({ body: index });
        }
        const { inbox } = await openReceiver(connection, { source: 'rhea.presettled', snd_settle_mode: 1 });
        assert.deepStrictEqual(bodies(await inbox.take(100)), Array.from({ length: 100 }, (_, index) => index));
        await close(connection);
    },

    async large_message() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.large');
        const content = Buffer.alloc(10_000_000, 'legato');
        await sendAll(sender, [{ body: rhea.message.data_section(content) }]);
        const { inbox } = await openReceiver(connection, 'rhea.large');
        const [{ message }] = await inbox.take(1);
        assert.ok(content.equals(message.body.content));
        await close(connection);
    },

    async anonymous_sender() {
        const connection = await connect();
        const sender = await openSender(connection, { target: {} });
        await sendAll(sender, ['rhea.to.a', 'rhea.to.b'].map((to) => ({ to, body: to })));
        for (const address of ['rhea.to.a', 'rhea.to.b']) {
            const { inbox } = await openReceiver(connection, address);
            assert.deepStrictEqual(bodies(await inbox.take(1)), [address]);
        }
        await close(connection);
    },

    async priorities() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.priorities');
        await sendAll(sender, [4, 9, 0, 9].map((priority, index) => ({ body: index, priority })));
        const { inbox } = await openReceiver(connection, 'rhea.priorities');
        assert.deepStrictEqual(bodies(await inbox.take(4)), [1, 3, 0, 2]);
        await close(connection);
    },

    async expired_message_is_not_delivered() {
        const connection = await connect();
        const sender = await openSender(connection, 'rhea.expired');
        await sendAll(sender, [{ body: 'short-lived', ttl: 1 }, { body: 'lasting' }]);
        await new Promise((resolve) => setTimeout(resolve, 20));
        const { inbox } = await openReceiver(connection, 'rhea.expired');
        assert.deepStrictEqual(bodies(await inbox.take(1)), ['lasting']);
        await close(connection);
    },
};

async function main() {
    for (const [name, scenario] of Object.entries(scenarios)) {
        if (chosen.length && !chosen.some((part) => name.includes(part))) {
            continue;
        }
        const started = Date.now();
        let timer;
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error('timed out')), SCENARIO_TIMEOUT_MS);
        });
        let outcome = 'passed';
        let text = '';
        try {
            await Promise.race([scenario(), late]);
        } catch (error) {
            outcome = 'failed';
            text = String(error.stack || error).replace(/\s+/g, ' ');
        }
        clearTimeout(timer);
        console.log(['end', name, outcome, Date.now() - started, text].join('\t'));
    }
}

// A scenario that failed may have left connections open, and what they say now is nobody's.
process.on('uncaughtException', (error) => console.error(error));
process.on('unhandledRejection', (error) => console.error(error));
main().then(() => process.exit(0));
