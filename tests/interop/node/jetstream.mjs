// What a client of JetStream does with a server that it takes for one; prints what it saw as JSON.
import {jetstream, jetstreamManager, AckPolicy} from "@nats-io/jetstream";
import {Kvm} from "@nats-io/kv";
import {Objm} from "@nats-io/obj";
import {connect, nanos} from "@nats-io/transport-node";

const scenarios = {
    async streams(js, jsm) {
        const saw = [];
        await jsm.streams.add({name: "a", subjects: ["a.*"]});
        for (const subject of ["a.b", "a.c", "a.b"]) {
            saw.push((await js.publish(subject, subject, {msgID: subject})).duplicate);
        }
        saw.push(await js.publish("a.b", "", {expect: {lastSequence: 7}}).catch((error) => error.code));
        saw.push(await jsm.streams.find("a.c"));
        saw.push((await jsm.streams.getMessage("a", {seq: 2})).subject);
        saw.push((await jsm.streams.info("a", {subjects_filter: ">"})).state.subjects);
        saw.push((await jsm.streams.purge("a", {filter: "a.b"})).purged);
        saw.push(await jsm.streams.delete("a"));
        saw.push(await js.publish("a.b").catch((error) => error.name));
        return saw;
    },
    async consumers(js, jsm) {
        const saw = [];
        await jsm.streams.add({name: "c", subjects: ["c.*"]});
        await jsm.consumers.add("c", {durable_name: "me", ack_policy: AckPolicy.Explicit, ack_wait: nanos(60_000)});
        for (let number = 0; number < 10; number++) {
            await js.publish("c." + number % 2, String(number));
        }
        const consumer = await js.consumers.get("c", "me");
        const first = await consumer.next();
        saw.push(first.string());
        saw.push(await first.ackAck());
        for await (const message of await consumer.fetch({max_messages: 4, expires: 2000})) {
            saw.push(message.string());
            message.ack();
        }
        const messages = await consumer.consume();
        for await (const message of messages) {
            saw.push(message.string());
            await message.ackAck();
            if (message.info.pending === 0) break;
        }
        const ordered = await js.consumers.get("c", {filter_subjects: "c.1"});
        for await (const message of await ordered.fetch({max_messages: 5, expires: 2000})) {
            saw.push([message.seq, message.string()]);
        }
        const info = await consumer.info();
        saw.push([info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq]);
        await jsm.streams.delete("c");
        return saw;
    },
    async buckets(js) {
        const saw = [];
        const bucket = await new Kvm(js).create("testing", {history: 5});
        const watch = await bucket.watch();
        const watched = (async () => {
            for await (const entry of watch) {
                saw.push([entry.key, entry.operation, entry.string()]);
                if (entry.operation === "PURGE") break;
            }
        })();
        const revision = await bucket.create("hello.world", "hi");
        await bucket.update("hello.world", "world", revision);
        const late = await bucket.update("hello.world", "late", revision).catch((error) => error.code);
        await bucket.delete("hello.world");
        await bucket.put("other", "x");
        const history = [];
        for await (const entry of await bucket.history({key: "hello.world"})) {
            history.push(entry.operation);
        }
        const keys = [];
        for await (const key of await bucket.keys()) {
            keys.push(key);
        }
        await bucket.purge("other");
        await watched;
        saw.push(late, history, keys, (await bucket.get("hello.world")).operation, await bucket.destroy());
        return saw;
    },
    async objects(js) {
        const saw = [];
        const store = await new Objm(js).create("files");
        const picture = new Uint8Array(300_000).map((_, place) => place % 251);
        const info = await store.putBlob({name: "picture"}, picture);
        saw.push([info.size, info.chunks]);
        saw.push(Buffer.compare(await store.getBlob("picture"), picture));
        await store.putBlob({name: "picture"}, picture.subarray(0, 10));
        saw.push((await store.getBlob("picture")).length, (await store.status()).size < 10_000);
        saw.push((await store.list()).map((each) => each.name));
        saw.push((await store.delete("picture")).success, (await store.info("picture")).deleted);
        saw.push(await store.destroy());
        return saw;
    },
};

const [url, scenario] = process.argv.slice(2);
const client = await connect({servers: url});
const js = jetstream(client);
console.log(JSON.stringify(await scenarios[scenario](js, await jetstreamManager(client))));
await client.close();
