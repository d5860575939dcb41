# What a node does: find the gateway, register, send readings and heartbeats, keep
# readings while the gateway is away. docs/nodes.md has the protocol on one page.
#
# A node has no clock. It counts milliseconds since it was switched on, and tells the
# gateway how old a reading is that it had to keep.
import binascii
import gc
import os
import struct
import time

import board
import link

RETRIES = 5  # of a registration
STEEP = 0.5  # °C in a minute
FASTEST_MS = 2000  # a DHT22 measures no faster
KEPT = 120  # readings: an hour at one each 30 s
MAX_AGE_MS = 3600000
BATCH = 20  # kept readings to send between two measurements
BUSY = 3  # answers in a row that put the node off, until it asks for the name again

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
        self._busy = 0
        self._kept = Kept()
        self._batch = 0  # kept readings that may be sent before the next measurement
        self._history = []  # (ticks, temperature) of the last three intervals

    def run(self):
        print("node", self._id)
        while not self._radio.joined():
            self._wait(500)
        self._register()
        self._reading = time.ticks_ms()  # when it is due
        self._beat = time.ticks_add(self._reading, self._interval * 3 // 2)
        while True:
            try:
                self._turn()
            except MemoryError as error:  # a fresh start would lose what is kept
                gc.collect()
                print("memory:", error)
                self._wait(1000)

    # Does what is due, or sends what was kept, or waits.
    def _turn(self):
        now = time.ticks_ms()
        if time.ticks_diff(now, self._reading) >= 0:
            due = self._reading
            if time.ticks_diff(now, due) > self._interval:  # far behind: leave some out
                due = now
            self._reading = time.ticks_add(due, self._interval)
            self._cycle()
            if self._steep():
                self._reading = time.ticks_add(due, min(self._interval, max(FASTEST_MS, self._interval // 6)))
        elif time.ticks_diff(now, self._beat) >= 0:
            self._beat = time.ticks_add(now, self._interval * 3 // 2)
            self._post("heartbeat", lambda: {"node_id": self._id})
        elif self._batch and self._kept.count:
            self._batch = self._batch - 1 if self._send(self._kept.take()) == DONE else 0
        else:
            self._radio.joined()
            self._wait(min(time.ticks_diff(self._reading, now), time.ticks_diff(self._beat, now)))

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
            if self._radio.joined() and self._post("register", lambda: {"node_id": self._id, "ip_addr": self._radio.address()}) == DONE:
                print("registered")
                return

    # Measures and sends the new reading before any that was kept.
    def _cycle(self):
        gc.collect()
        self._watchdog.feed()
        self._forget()
        self._batch = BATCH
        try:
            temperature, humidity = self._sensor.read()
            check(temperature, humidity)
        except Exception as error:  # MicroPython's drivers raise plain ones for a checksum
            print("sensor:", repr(error))  # nothing is sent: an invented value would be worse
            return
        now = time.ticks_ms()
        tenths = round(temperature * 10)
        self._history.append((now, tenths / 10))
        # Eight random bytes: unlike a counter, unique after a restart too.
        if self._send((os.urandom(8), tenths, round(humidity * 10), now)) != DONE:
            self._batch = 0

    # Drops what is too old, in each cycle: ticks count from 0 again after 12 days, and
    # what was left from before would seem new.
    def _forget(self):
        now = time.ticks_ms()
        while self._kept.count and time.ticks_diff(now, self._kept.ticks()) > MAX_AGE_MS:
            self._kept.take()
        while self._history and time.ticks_diff(now, self._history[0][0]) >= 3 * self._interval:
            self._history.pop(0)

    # Sends a reading, and keeps it where that fails.
    def _send(self, record):
        message_id, temperature, humidity, at = record
        message = {
            "id": binascii.hexlify(message_id).decode(),
            "node_id": self._id,
            "temperature": temperature / 10,
            "humidity": humidity / 10,
        }

        # Called when the connection stands, which may take as long as a measurement.
        def aged():
            age = time.ticks_diff(time.ticks_ms(), at)
            if age >= 100:
                message["age_s"] = age / 1000
            return message

        became = self._post("message", aged, message["id"])
        if became != DONE:
            self._kept.put(record)
        else:
            print(message["temperature"], "C", message["humidity"], "%")
        return became

    # Whether the temperature rises by more than STEEP a minute.
    def _steep(self):
        if not self._history:
            return False
        (first, low), (last, high) = self._history[0], self._history[-1]
        span = time.ticks_diff(last, first)
        return span >= self._interval * 3 // 4 and (high - low) * 60000 > STEEP * span

    def _post(self, path, body, message_id=None):
        self._watchdog.feed()
        if not self._radio.joined():
            return GONE
        try:
            if self._address is None:
                self._address = link.resolve(self._config.GATEWAY, self._config.PORT, self._watchdog.feed)
            status, answer = link.post(self._address, self._config.GATEWAY, "/api/v1/" + path, body, self._watchdog.feed)
        except (OSError, ValueError) as error:
            print(path + ":", error)
            self._address = None  # the name may be another machine's now
            return GONE
        except MemoryError as error:  # of this node's, not of the gateway's making
            print(path + ":", error)
            gc.collect()
            return AGAIN
        became = meaning(status, answer, self._id, message_id)
        if became == DONE:
            self._busy = 0
            if status == 400 or status == 413:
                # To send it again cannot help. What is wrong is for whoever reads the console.
                print(path, "rejected:", answer["error"], answer.get("reason"))
            return DONE
        print(path, "answered", status, "by no gateway" if became == GONE else answer["error"])
        self._busy += 1
        if became == GONE or self._busy == BUSY:
            self._busy = 0
            self._address = None
        return became


# What an answer means. Whatever else listens at an address answers too, a hotspot's login
# page with 200: only JSON with the members that the gateway writes is the gateway's.
def meaning(status, answer, node_id, message_id):
    if not isinstance(answer, dict):
        return GONE
    if status == 200 or status == 201:
        mine = answer.get("message_id") == message_id if message_id else answer.get("node_id") == node_id
        return DONE if mine else GONE
    if "error" not in answer:
        return GONE
    if status == 500 and answer.get("kept") is True:
        return DONE  # the gateway has it on disk and will publish it
    if status in (408, 429, 500, 502, 503, 504):
        return AGAIN  # next time, under the same id
    if status == 413 or status == 400 and ("reason" in answer or not message_id):
        return DONE
    return GONE


# Readings that wait for the gateway, oldest first, in memory that is taken at the start:
# message id, tenths of a degree and of a percent, ticks.
class Kept:
    FORM, SIZE = "<8shhI", 16

    def __init__(self):
        self._bytes = memoryview(bytearray(KEPT * self.SIZE))
        self.count = 0

    def _read(self, place):
        return struct.unpack_from(self.FORM, self._bytes, place * self.SIZE)

    # When the oldest was measured.
    def ticks(self):
        return self._read(0)[3]

    # Takes the oldest out.
    def take(self):
        record = self._read(0)
        self.count -= 1
        self._bytes[: -self.SIZE] = self._bytes[self.SIZE :]
        return record

    # Puts a reading in its place by its age. Where there is no room the oldest goes.
    def put(self, record):
        if self.count == KEPT:
            self.take()
        place = self.count
        while place and time.ticks_diff(self._read(place - 1)[3], record[3]) > 0:
            place -= 1
        at = place * self.SIZE
        self._bytes[at + self.SIZE :] = self._bytes[at : -self.SIZE]
        struct.pack_into(self.FORM, self._bytes, at, *record)
        self.count += 1


# Refuses what broken sensors report: nothing, no number, and 85 °C of a DS18B20 without
# power is the driver's to refuse. The gateway's limits are those of the hardware.
def check(temperature, humidity):
    if not -40 <= temperature <= 125:
        raise ValueError("%s degrees" % temperature)
    if not 0 <= humidity <= 100:
        raise ValueError("%s percent" % humidity)
