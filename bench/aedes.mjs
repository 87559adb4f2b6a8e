// Aedes for the benchmark: node aedes.mjs PORT MODULES, where MODULES is the node_modules folder that holds aedes.
//
// At its best: no bound on messages in the emitter and on what waits before CONNECT, no wait for slow sockets that ends
// in a disconnect, no Nagle, no log. Everything is in memory, which is its default.

import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [port, modules] = process.argv.slice(2)
const require = createRequire(join(modules, 'aedes.mjs'))
// by its address: a module's import looks at no NODE_PATH, and Node before 22 can't require() what is a module
const loaded = await import(pathToFileURL(require.resolve('aedes')))
const Aedes = loaded.Aedes ?? loaded.default.Aedes ?? loaded.default

const options = {
  concurrency: 0,
  queueLimit: 100000,
  maxInflightInbound: 0,
  drainTimeout: 0,
  maxClientsIdLength: 65535
}
const aedes = Aedes.createBroker ? await Aedes.createBroker(options) : new Aedes(options)

createServer({ noDelay: true }, aedes.handle).listen({ port: Number(port), host: '127.0.0.1', backlog: 4096 })
