#!/usr/bin/env python3
# Makes a hanging transaction, as after a broker has lost the end of one: the partition has open records of a transactional id, and the
# coordinator knows no transaction. Speaks Kafka's protocol itself, as no client does this. Meanwhile it turns off the broker's check that a
# partition belongs to its transaction. Run by tests against a real Kafka.
#
#   hanging_transaction.py HOST:PORT TRANSACTIONAL_ID < records
#
# records: lines of JSON, {"topic", "partition", "key", "value", "headers": {name: text}}
import json
import socket
import struct
import sys
import time
from contextlib import contextmanager

CRC32C = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC32C.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def string(text):
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def varint(value):  # zigzag
    value = value << 1 ^ value >> 63
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes(data) + bytes([value])


def sized(data):
    return varint(len(data)) + data


# "Record Batch" of Kafka's message format (magic 2) with one record, transactional.
def batch(record, producer, epoch):
    headers = b"".join(sized(name.encode()) + sized(value.encode()) for name, value in record["headers"].items())
    body = b"\0" + varint(0) + varint(0) + sized(record["key"].encode()) + sized(record["value"].encode())
    body += varint(len(record["headers"])) + headers
    now = int(time.time() * 1000)
    is_transactional = 16
    after_crc = struct.pack(">hiqqqhii", is_transactional, 0, now, now, producer, epoch, 0, 1) + sized(body)
    after_length = struct.pack(">ibI", -1, 2, crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


class Broker:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)

    def ask(self, api, version, body):
        request = struct.pack(">hhi", api, version, 1) + string("test") + body
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        answer = self.receive(struct.unpack(">i", self.receive(4))[0])
        return answer[4:]

    def receive(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit("the broker closed the connection")
            data += more
        return data

    def open_producer(self, transactional_id):
        find_coordinator, of_transactions = 10, b"\1"
        for _ in range(100):  # while the coordinator loads
            self.ask(find_coordinator, 1, string(transactional_id) + of_transactions)  # a fresh broker makes the topic then
            answer = self.ask(22, 1, string(transactional_id) + struct.pack(">i", 60_000))
            _, error, producer, epoch = struct.unpack(">ihqh", answer)
            if error == 0:
                return producer, epoch
            time.sleep(0.1)
        sys.exit(f"InitProducerId: error {error}")

    def produce(self, transactional_id, record, producer, epoch):
        records = batch(record, producer, epoch)
        body = string(transactional_id) + struct.pack(">hii", -1, 10_000, 1) + string(record["topic"])
        body += struct.pack(">iii", 1, record["partition"], len(records)) + records
        invalid_transaction_state = 48
        for _ in range(40):
            answer = self.ask(0, 7, body)
            (error,) = struct.unpack_from(">h", answer, 4 + len(string(record["topic"])) + 8)
            if error != invalid_transaction_state:
                break
            # The broker has not applied the change yet, or another test at the same time has turned the check on again.
            self.set_verification("false")
            time.sleep(0.25)
        if error:
            sys.exit(f"Produce: error {error}")

    def set_verification(self, value):
        broker, cluster_default, set_value = 4, "", 0
        setting = string("transaction.partition.verification.enable") + struct.pack(">b", set_value) + string(value)
        body = struct.pack(">ib", 1, broker) + string(cluster_default) + struct.pack(">i", 1) + setting + b"\0"
        (error,) = struct.unpack_from(">h", self.ask(44, 0, body), 8)
        if error:
            sys.exit(f"IncrementalAlterConfigs: error {error}")

    @contextmanager
    def without_verification(self):
        self.set_verification("false")
        try:
            yield
        finally:
            self.set_verification("true")


def main():
    address, transactional_id = sys.argv[1:]
    broker = Broker(address)
    with broker.without_verification():
        producer, epoch = broker.open_producer(transactional_id)
        for line in sys.stdin:
            broker.produce(transactional_id, json.loads(line), producer, epoch)


main()
