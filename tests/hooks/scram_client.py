"""The client's half of SCRAM-SHA-256, as short as it can be; it knows nothing of the server's code."""

import hashlib
import hmac
from base64 import b64decode, b64encode


class ScramClient:
    def __init__(self, name: str, password: str, nonce: str = "clientnonce", header: str = "n,,") -> None:
        self.password = password.encode()
        self.nonce = nonce
        self.header = header
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={escaped},r={nonce}"
        self.signature = b""

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert fields["r"].startswith(self.nonce)
        assert len(fields["r"]) > len(self.nonce)
        salted = hashlib.pbkdf2_hmac("sha256", self.password, b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c={b64encode(self.header.encode()).decode()},r={fields['r']}"
        signed = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.signature = hmac.digest(server_key, signed, "sha256")
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def trusts(self, outcome: bytes) -> bool:
        return outcome == b"v=" + b64encode(self.signature)
