# What a node does: find the gateway, register, send readings and heartbeats, keep
# readings while the gateway is away. docs/nodes.md has the protocol on one page.
#
# A node has no clock. It counts milliseconds since it was switched on, and tells the
# gateway how old a reading is that it had to keep.
import binascii
import json
import os
import select
import socket
import struct
import time

import board

RETRIES = 5  # of a registration
ANSWER_MS = 10000  # the gateway itself may wait 4 s for the cloud
CONNECT_S = 4  # less than the watchdog's 8
STEEP = 0.5  # °C in a minute
KEPT = 120  # readings: an hour at one each 30 s
MAX_AGE_MS = 3600000
BATCH = 20  # kept readings to send between two measurements

DONE, AGAIN, GONE = range(3)  # what became of a request: GONE means no gateway answered


class Node:
    def __init__(self, config, sensor, radio, watchdog):
        self._config = config
        self._sensor = sensor
        self._radio = radio
        self._watchdog = watchdog
        self._id = board.node_id(config)
        self._interval = int(config.INTERVAL_S * 1000)
        self._address = None  # of the gateway
        self._kept = []  # (message id, temperature, humidity, ticks), oldest first
        self._history = []  # (ticks, temperature) of the last three intervals

    def run(self):
        while not self._radio.joined():
            self._wait(500)
        self._register()
        now = time.ticks_ms()
        reading, beat = now, time.ticks_add(now, self._interval * 3 // 2)
        while True:
            now = time.ticks_ms()
            if time.ticks_diff(now, reading) >= 0:
                self._cycle()
                pause = self._interval // 6 if self._steep() else self._interval
                reading = time.ticks_add(reading, pause)
                if time.ticks_diff(time.ticks_ms(), reading) > pause:  # far behind: leave some out
                    reading = time.ticks_add(time.ticks_ms(), pause)
            elif time.ticks_diff(now, beat) >= 0:
                self._post("heartbeat", {"node_id": self._id})
                beat = time.ticks_add(now, self._interval * 3 // 2)
            else:
                self._radio.joined()
                self._wait(min(time.ticks_diff(reading, now), time.ticks_diff(beat, now)))

    # Waits with the watchdog fed, a second at most, so that the loop looks after the radio.
    def _wait(self, ms):
        self._watchdog.feed()
        time.sleep_ms(max(1, min(ms, 1000)))

    # Registers, with five retries. When all fail the node goes on: the gateway registers
    # it with its first reading.
    def _register(self):
        pause = self._interval // 30
        for attempt in range(1 + RETRIES):
            if attempt:
                until = time.ticks_add(time.ticks_ms(), pause)
                while time.ticks_diff(until, time.ticks_ms()) > 0:
                    self._wait(time.ticks_diff(until, time.ticks_ms()))
                pause *= 2
            if self._radio.joined() and self._post("register", {"node_id": self._id, "ip_addr": self._radio.address()}) == DONE:
                return

    # Measures, sends the new reading first, and then some of those that were kept.
    def _cycle(self):
        self._watchdog.feed()
        try:
            temperature, humidity = self._sensor.read()
            check(temperature, humidity)
        except (OSError, ValueError) as error:
            print("sensor:", error)  # nothing is sent: an invented value would be worse
        else:
            now = time.ticks_ms()
            self._history.append((now, temperature))
            while time.ticks_diff(now, self._history[0][0]) > 3 * self._interval:
                self._history.pop(0)
            # Eight random bytes: unlike a counter, unique after a restart too.
            message_id = binascii.hexlify(os.urandom(8)).decode()
            self._kept.append((message_id, temperature, humidity, now))
            if len(self._kept) > KEPT:
                self._kept.pop(0)
            if self._send(self._kept[-1]) != DONE:
                return
            self._kept.pop()
        for _ in range(BATCH):
            while self._kept and time.ticks_diff(time.ticks_ms(), self._kept[0][3]) > MAX_AGE_MS:
                self._kept.pop(0)
            if not self._kept or self._send(self._kept[0]) != DONE:
                return
            self._kept.pop(0)

    def _send(self, reading):
        message_id, temperature, humidity, at = reading
        message = {"id": message_id, "node_id": self._id, "temperature": temperature, "humidity": humidity}
        age = time.ticks_diff(time.ticks_ms(), at)
        if age >= 100:
            message["age_s"] = age / 1000
        return self._post("message", message)

    # Whether the temperature rises by more than STEEP a minute.
    def _steep(self):
        if not self._history:
            return False
        (first, low), (last, high) = self._history[0], self._history[-1]
        span = time.ticks_diff(last, first)
        return span >= self._interval * 3 // 4 and (high - low) * 60000 > STEEP * span

    def _post(self, path, body):
        self._watchdog.feed()
        if not self._radio.joined():
            return GONE
        try:
            if self._address is None:
                self._address = resolve(self._config.GATEWAY, self._config.PORT, self._watchdog.feed)
            status, answer = post(self._address, self._config.GATEWAY, "/api/v1/" + path, body, self._watchdog.feed)
        except (OSError, ValueError) as error:
            print(path + ":", error)
            self._address = None  # the name may be another machine's now
            return GONE
        if status == 200 or status == 201:
            # A hotspot's login page is 200 too, and no gateway.
            if isinstance(answer, dict) and ("message_id" in answer or "node_id" in answer):
                return DONE
        elif status == 500 and isinstance(answer, dict) and answer.get("kept") is True:
            return DONE  # the gateway has it on disk and will publish it
        elif status in (429, 500, 502, 503, 504, 408):
            return AGAIN  # next time, under the same id
        elif status in (400, 413) and isinstance(answer, dict):
            # To send it again cannot help. What is wrong is for whoever reads the console.
            print(path, "rejected:", answer.get("error"), answer.get("reason"))
            return DONE
        print(path, "answered", status, "by no gateway")
        self._address = None
        return GONE


# Refuses what broken sensors report: nothing, no number, and 85 °C of a DS18B20 without
# power is the driver's to refuse. The gateway's limits are those of the hardware.
def check(temperature, humidity):
    if not -40 <= temperature <= 125:
        raise ValueError("%s degrees" % temperature)
    if not 0 <= humidity <= 100:
        raise ValueError("%s percent" % humidity)


# Posts JSON over one connection and returns status and decoded answer. Calls feed
# while it waits.
def post(address, host, path, body, feed):
    text = json.dumps(body).encode()
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        s.settimeout(CONNECT_S)
        s.connect(address)
        request = "POST %s HTTP/1.0\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        s.write((request % (path, host, len(text))).encode() + text)
        answer = receive(s, ANSWER_MS, feed)
    finally:
        s.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError("no HTTP")
    try:
        decoded = json.loads(content)
    except ValueError:
        decoded = None
    return int(words[1]), decoded


# Reads until the other side closes, 4 KB at most.
def receive(s, ms, feed):
    poller = select.poll()
    poller.register(s, select.POLLIN)
    until = time.ticks_add(time.ticks_ms(), ms)
    answer = b""
    while len(answer) < 4096:
        feed()
        if poller.poll(500):
            some = s.recv(512)
            if not some:
                return answer
            answer += some
        elif time.ticks_diff(until, time.ticks_ms()) <= 0:
            raise OSError("no answer in time")
    return answer


# The address of a name. For one of .local it asks by mDNS itself, because not every
# board's getaddrinfo does (an ESP8266's does not), and then that.
def resolve(host, port, feed):
    if host.endswith(".local"):
        for _ in range(3):
            feed()
            found = query(host)
            if found:
                return socket.getaddrinfo(found, port)[0][-1]
    feed()
    return socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][-1]


MDNS = ("224.0.0.251", 5353)


# Asks the network for a name's IPv4 address. The question comes from another port than
# 5353, so that the answer comes here and to nobody else (RFC 6762, 6.7).
def query(host):
    number = os.urandom(2)
    question = number + b"\0\0\0\1\0\0\0\0\0\0"
    for label in host.split("."):
        question += bytes([len(label)]) + label.encode()
    question += b"\0\0\1\0\1"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        s.sendto(question, socket.getaddrinfo(MDNS[0], MDNS[1])[0][-1])
        poller = select.poll()
        poller.register(s, select.POLLIN)
        if poller.poll(1000):
            return answered(s.recv(1500), number, host)
    finally:
        s.close()


# The first IPv4 address that a DNS message tells of a name, or None.
def answered(message, number, host):
    try:
        if message[:2] != number or not message[2] & 0x80:
            return None
        questions, answers = struct.unpack_from(">HH", message, 4)
        at = 12
        for _ in range(questions):
            at = name(message, at)[1] + 4
        for _ in range(answers):
            owner, at = name(message, at)
            kind, _, _, size = struct.unpack_from(">HHIH", message, at)
            at += 10
            if kind == 1 and size == 4 and owner == host.lower():
                return "%d.%d.%d.%d" % tuple(message[at : at + 4])
            at += size
    except (IndexError, ValueError, TypeError):  # cut off
        pass
    return None


# A name in a DNS message, in small letters, and where the bytes after it begin.
def name(message, at):
    labels, end = [], None
    for _ in range(20):  # a name that refers to itself would have no end
        size = message[at]
        if size == 0:
            return ".".join(labels), (end or at + 1)
        if size >= 0xC0:
            end = end or at + 2
            at = (size & 0x3F) << 8 | message[at + 1]
        else:
            labels.append(message[at + 1 : at + 1 + size].decode().lower())
            at += 1 + size
    raise ValueError("name without end")
