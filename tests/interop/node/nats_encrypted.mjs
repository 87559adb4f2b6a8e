// A client of NATS over TLS or WebSocket; prints what it saw as JSON.
import {connect, wsconnect} from "@nats-io/transport-node";

const [url, listener, ca, cert, key] = process.argv.slice(2);
const encrypted = url.startsWith("tls:");
const tls = {caFile: ca, handshakeFirst: listener === "first"};
const options = {servers: url, reconnect: false, timeout: 60_000};
const open = more => (encrypted ? connect({...options, tls: {...tls, ...more}}) : wsconnect(options));

let refused = false;
if (listener === "mutual") {
    try {
        await open({});
    } catch {
        refused = true;
    }
}
const client = await open(listener === "mutual" ? {certFile: cert, keyFile: key} : {});
const subject = `js.${listener}`;
const subscription = client.subscribe(subject);
const served = (async () => {
    for await (const message of subscription) {
        message.respond(message.data);
    }
})();

const payload = Uint8Array.from({length: 768_000}, (_, at) => at);
const echo = await client.request(subject, payload, {timeout: 60_000});
const answers = await Promise.all(
    Array.from({length: 50}, (_, number) => client.request(subject, String(number), {timeout: 60_000})),
);
await client.drain();
await served;
const same = Buffer.compare(Buffer.from(echo.data), Buffer.from(payload)) === 0;
console.log(JSON.stringify({large: same ? payload.length : 0, answers: answers.map(each => Number(each.string())), refused}));
