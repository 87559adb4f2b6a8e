// What a client of NATS does with a server that it takes for one; prints what it saw as JSON.
import {connect, headers} from "@nats-io/transport-node";

const [url, pass] = process.argv.slice(2);
const saw = [];
let client;
try {
    client = await connect({servers: url, user: "ann", pass, reconnect: false});
} catch (error) {
    console.log(JSON.stringify(error.name));
    process.exit(0);
}
const subscription = client.subscribe("room.*", {queue: "answers"});
const done = (async () => {
    for await (const message of subscription) {
        saw.push([message.subject, message.string(), message.headers?.get("unit") ?? ""]);
        message.respond("21.5");
    }
})();
const block = headers();
block.append("unit", "C");
client.publish("room.kitchen", "note", {headers: block});
saw.push((await client.request("room.hall", "how warm", {timeout: 10_000})).string());
try {
    await client.request("nobody", "", {timeout: 10_000});
} catch (error) {
    saw.push(error.isNoResponders?.() ?? error.name);
}
await client.drain();
await done;
console.log(JSON.stringify(saw));
