"""The codec alone turns bytes into packets and back, without a socket or an event loop.

Run it with `python examples/codec.py`.
"""

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Connect, Disconnect, Pingreq, Publish
from trunkline.mqtt.versions import Version

# The packets of a client, as they would come out of a socket
stream = encode(Connect("thermometer", keep_alive=60), Version.V5)
stream += encode(Publish("kitchen/temperature", b"21.5"), Version.V5)
stream += encode(Pingreq(), Version.V5)

# A server takes the stream in pieces of any size
decoder = Decoder(max_packet_size=1_048_576)
for start in range(0, len(stream), 10):
    for packet in decoder.feed(stream[start : start + 10]):
        match packet:
            case Connect(client_id, version):
                print(client_id, "speaks MQTT", version)
                print("answer:", encode(Connack(), version).hex(" "))
            case Publish(topic, payload):
                print(topic, "is", payload.decode())
            case _:
                print(packet)

# A wrong packet raises nothing: `error` has the reason to answer with
decoder.feed(bytes.fromhex("36 00"))
if decoder.error is not None and decoder.version is not None:
    print("error:", decoder.error)
    print("answer:", encode(Disconnect(decoder.error.reason), decoder.version).hex(" "))
