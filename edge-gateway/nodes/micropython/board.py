# The board: WiFi, watchdog, and the chip's own number.
import binascii
import sys
import time

import machine
import network

RETRY_MS = 15000  # a join takes up to 10 s
HOPELESS_MS = 3600000  # readings are worthless after an hour: a fresh start loses nothing


class Watchdog:
    # Of the boards here the Pico W allows the least, 8388 ms. An ESP8266 has a fixed time.
    def __init__(self):
        if sys.platform == "esp8266":
            self._wdt = machine.WDT()
        else:
            self._wdt = machine.WDT(timeout=8000)

    def feed(self):
        self._wdt.feed()


class Radio:
    def __init__(self, config):
        self._config = config
        self._wlan = network.WLAN(network.STA_IF)
        self._wlan.active(True)
        self._lost = None  # since when, in ticks
        self._tried = None

    # Joins the network when it was lost, and says whether it is there. Never waits.
    def joined(self):
        if self._wlan.isconnected():
            self._lost = self._tried = None
            return True
        now = time.ticks_ms()
        if self._lost is None:
            self._lost = now
        if time.ticks_diff(now, self._lost) > HOPELESS_MS:
            machine.reset()
        if self._tried is None or time.ticks_diff(now, self._tried) > RETRY_MS:
            self._tried = now
            try:
                self._wlan.disconnect()
                self._wlan.connect(self._config.WIFI, self._config.PASSWORD)
            except OSError as error:  # the driver is busy: the next try comes
                print("wifi:", error)
        return False

    def address(self):
        return self._wlan.ifconfig()[0]


def node_id(config):
    if config.NODE_ID:
        return config.NODE_ID
    return sys.platform + "-" + binascii.hexlify(machine.unique_id()).decode()
