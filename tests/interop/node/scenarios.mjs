// One scenario a run: node scenarios.mjs NAME URL PREFIX VERSION NUMBER…. Prints what happened as JSON; the Python side judges.
import mqtt from "mqtt";

const [scenario, url, prefix, version, ...numbers] = process.argv.slice(2);
const protocol = {
  3: { protocolId: "MQIsdp", protocolVersion: 3 },
  4: { protocolVersion: 4 },
  5: { protocolVersion: 5 },
}[version];

function open(clientId, options = {}) {
  return mqtt.connectAsync(url, { clientId: prefix + clientId, reconnectPeriod: 0, ...protocol, ...options });
}

// Messages as they come, from the moment of the call: `take(n)` waits for n of them.
function inbox(client) {
  const waiting = [];
  const got = [];
  client.on("message", (topic, payload, packet) => {
    got.push({
      topic: topic.slice(prefix.length),
      payload: payload.toString(),
      qos: packet.qos,
      retain: packet.retain,
      dup: packet.dup,
      properties: packet.properties,
    });
    while (waiting.length && got.length >= waiting[0].number) {
      const { number, resolve } = waiting.shift();
      resolve(got.splice(0, number));
    }
  });
  return {
    take(number) {
      if (got.length >= number) return Promise.resolve(got.splice(0, number));
      return new Promise((resolve) => waiting.push({ number, resolve }));
    },
  };
}

const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

const scenarios = {
  async delivery() {
    const client = await open("");
    const messages = inbox(client);
    const seen = [];
    for (const wanted of [0, 1, 2]) {
      const topic = `${prefix}/${wanted}`;
      const [granted] = await client.subscribeAsync(topic, { qos: wanted });
      for (const qos of [0, 1, 2]) {
        await client.publishAsync(topic, `${qos}`, { qos });
        const [message] = await messages.take(1);
        seen.push([wanted, granted.qos, qos, message.payload, message.qos]);
      }
      await client.unsubscribeAsync(topic);
    }
    await client.endAsync();
    return seen;
  },

  async retained() {
    const client = await open("");
    const messages = inbox(client);
    await client.publishAsync(`${prefix}/r`, "kept", { qos: 1, retain: true });
    await client.subscribeAsync(`${prefix}/+`, { qos: 1 });
    const [first] = await messages.take(1);
    await client.publishAsync(`${prefix}/r`, "", { qos: 1, retain: true });
    const [cleared] = await messages.take(1);
    await client.endAsync();
    return [first, cleared];
  },

  async resume() {
    const options = { clean: false, ...(version === "5" ? { properties: { sessionExpiryInterval: 300 } } : {}) };
    const first = await open("", options);
    await first.subscribeAsync(`${prefix}/#`, { qos: 2 });
    await first.endAsync();
    const publisher = await open("-p");
    for (let number = 0; number < 20; number++) {
      await publisher.publishAsync(`${prefix}/t`, `${number}`, { qos: (number % 2) + 1 });
    }
    await publisher.endAsync();
    // not connectAsync: messages of the session may come with the CONNACK
    const second = mqtt.connect(url, { clientId: prefix, reconnectPeriod: 0, ...protocol, ...options });
    const messages = inbox(second);
    const connack = await once(second, "connect");
    const got = await messages.take(20);
    await second.endAsync();
    await (await open("", { clean: true })).endAsync();
    return { present: connack.sessionPresent, payloads: got.map((message) => [message.qos, Number(message.payload)]) };
  },

  async will() {
    const watcher = await open("-w");
    const messages = inbox(watcher);
    await watcher.subscribeAsync(`${prefix}/will`, { qos: 2 });
    const dying = await open("", { will: { topic: `${prefix}/will`, payload: "gone", qos: 1, retain: false } });
    dying.stream.destroy();
    const [message] = await messages.take(1);
    await watcher.endAsync();
    return message;
  },

  async takeover() {
    const first = await open("");
    let reason = null;
    first.once("disconnect", (packet) => (reason = packet.reasonCode));
    const closed = once(first, "close");
    const second = await open("");
    await closed;
    await second.publishAsync(prefix, "still here", { qos: 1 });
    await second.endAsync();
    return { reason };
  },

  // With acknowledgements of both sides crossing. MQTT.js doesn't keep to the receive maximum of the broker: what is
  // published at once is sent at once.
  async burst(number, atOnce) {
    const client = await open("");
    const closed = once(client, "close").then(() => {
      throw new Error("closed by the broker");
    });
    closed.catch(() => {});
    const messages = inbox(client);
    await client.subscribeAsync(`${prefix}/#`, { qos: 2 });
    for (let start = 0; start < number; start += atOnce) {
      const sent = [];
      for (let index = start; index < start + atOnce; index++) {
        sent.push(client.publishAsync(`${prefix}/${index % 3}`, `${index}`, { qos: index % 3 }));
      }
      await Promise.race([Promise.all(sent), closed]);
    }
    const got = await Promise.race([messages.take(number), closed]);
    await client.endAsync();
    const byQos = [[], [], []];
    for (const message of got) byQos[message.qos].push(Number(message.payload));
    return byQos;
  },

  async large() {
    const client = await open("");
    const messages = inbox(client);
    await client.subscribeAsync(prefix, { qos: 1 });
    const payload = "0123456789abcdef".repeat(60_000);
    await client.publishAsync(prefix, payload, { qos: 1 });
    const [message] = await messages.take(1);
    await client.endAsync();
    return { size: message.payload.length, same: message.payload === payload };
  },

  async properties() {
    const client = await open("");
    const messages = inbox(client);
    await client.subscribeAsync(`${prefix}/#`, { qos: 1, properties: { subscriptionIdentifier: 7 } });
    await client.publishAsync(`${prefix}/p`, "{}", {
      qos: 1,
      properties: {
        payloadFormatIndicator: true,
        messageExpiryInterval: 60,
        contentType: "application/json",
        responseTopic: `${prefix}/answer`,
        correlationData: Buffer.from([0, 1, 255]),
        userProperties: { a: ["1", "2"], é: "ü" },
      },
    });
    const [message] = await messages.take(1);
    await client.endAsync();
    message.properties.correlationData = [...message.properties.correlationData];
    return message;
  },

  // Aliases both ways: MQTT.js assigns them and resolves those of the broker.
  async aliases() {
    const client = await open("", { autoAssignTopicAlias: true, properties: { topicAliasMaximum: 10 } });
    const messages = inbox(client);
    const wire = [];
    client.on("packetreceive", (packet) => {
      if (packet.cmd === "publish") wire.push([packet.topic.slice(prefix.length), packet.properties?.topicAlias]);
    });
    const sent = [];
    client.on("packetsend", (packet) => {
      if (packet.cmd === "publish") sent.push(packet.topic.slice(prefix.length));
    });
    await client.subscribeAsync(`${prefix}/#`, { qos: 1 });
    for (let number = 0; number < 6; number++) {
      await client.publishAsync(`${prefix}/${number % 2}`, `${number}`, { qos: 1 });
    }
    const got = await messages.take(6);
    await client.endAsync();
    return { got: got.map((message) => [message.topic, message.payload]), wire, sent };
  },

  async shared() {
    const members = [await open("-0"), await open("-1")];
    const boxes = members.map(inbox);
    for (const member of members) {
      await member.subscribeAsync([`$share/${prefix}/${prefix}/work`], { qos: 1 });
      await member.subscribeAsync(`${prefix}/fence`, { qos: 1 });
    }
    const publisher = await open("-p");
    for (let number = 0; number < 20; number++) await publisher.publishAsync(`${prefix}/work`, `${number}`, { qos: 1 });
    await publisher.publishAsync(`${prefix}/fence`, "", { qos: 1 });
    const shares = [];
    for (const box of boxes) {
      const share = [];
      for (;;) {
        const [message] = await box.take(1);
        if (message.topic === "/fence") break;
        share.push(Number(message.payload));
      }
      shares.push(share);
    }
    for (const client of [...members, publisher]) await client.endAsync();
    return shares;
  },

  // reconnectPeriod > 0: the connection is cut ten times while messages go out; none may be lost.
  async reconnects() {
    const reader = await open("-r");
    const messages = inbox(reader);
    await reader.subscribeAsync(prefix, { qos: 1 });
    const writer = await open("", {
      reconnectPeriod: 1,
      clean: false,
      ...(version === "5" ? { properties: { sessionExpiryInterval: 300 } } : {}),
    });
    const got = new Set();
    for (let number = 0; number < 100; number++) {
      if (number % 10 === 5) writer.stream.destroy();
      await writer.publishAsync(prefix, `${number}`, { qos: 1 });
    }
    while (got.size < 100) got.add((await messages.take(1))[0].payload);
    await writer.endAsync();
    await reader.endAsync();
    await (await open("", { clean: true })).endAsync();
    return got.size;
  },

  // An edge node whose configuration has empty strings for user name and password, as in its own example.
  async sparkplug() {
    const { default: sparkplug } = await import("sparkplug-client");
    const watcher = await open("-w");
    const messages = inbox(watcher);
    await watcher.subscribeAsync(`spBv1.0/${prefix}/#`, { qos: 0 });
    const node = sparkplug.newClient({
      serverUrl: url,
      username: "",
      password: "",
      groupId: prefix,
      edgeNode: "node",
      clientId: `${prefix}-n`,
      version: "spBv1.0",
      mqttOptions: { reconnectPeriod: 0 },
    });
    const failed = new Promise((_, reject) => {
      node.on("error", reject);
      node.on("close", () => reject(new Error("closed by the broker")));
    });
    await Promise.race([once(node, "birth"), failed]);
    const payload = (name) => ({ timestamp: 1, metrics: [{ name, value: 1, type: "Int32" }] });
    node.publishNodeBirth(payload("birth"));
    node.publishNodeData(payload("data"));
    const seen = (await Promise.race([messages.take(2), failed])).map((message) => message.payload);
    failed.catch(() => {});
    node.stop();
    await watcher.endAsync();
    return seen.map((text) => ["birth", "data"].find((name) => text.includes(name)));
  },

  async refused() {
    const client = await open("");
    const granted = await client.subscribeAsync(`${prefix}/ok`, { qos: 2 });
    const gone = await client.unsubscribeAsync([`${prefix}/ok`, `${prefix}/never`]);
    await client.endAsync();
    return { granted: granted.map((one) => one.qos), unsuback: gone?.granted ?? null };
  },
};

const timer = setTimeout(() => {
  console.error(`${scenario} took too long`);
  process.exit(2);
}, 60_000);
try {
  console.log(JSON.stringify(await scenarios[scenario](...numbers.map(Number))));
} catch (error) {
  console.error(error);
  process.exit(1); // connections would keep it alive
}
clearTimeout(timer);
