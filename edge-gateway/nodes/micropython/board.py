# The board: its settings, WiFi, watchdog, and the chip's own number.
import binascii
import sys
import time

import machine
import network

RETRY_MS = 15000  # a join takes up to 10 s
HOPELESS_MS = 3600000  # readings are worthless after an hour: a fresh start loses nothing


# Refuses settings with which the board would only seem to work.
def check(config):
    if config.WIFI == "the network's name":
        raise ValueError("config.py: WIFI is still the example's")
    if not 0 < config.INTERVAL_S <= 600:
        raise ValueError("config.py: INTERVAL_S must be 600 seconds at most")
    gateway = config.GATEWAY.lower()
    if not gateway.endswith(".local") and not gateway.replace(".", "").isdigit():
        raise ValueError("config.py: GATEWAY must be a name that ends in .local or an IPv4 address")
    allowed = "abcdefghijklmnopqrstuvwxyz0123456789._:-"
    reserved = config.NODE_ID in (".", "..", "coldaisle.probe")
    if len(config.NODE_ID) > 50 or any(c not in allowed for c in config.NODE_ID.lower()) or reserved:
        raise ValueError("config.py: NODE_ID must be up to 50 letters, digits or . _ : -, and not . or .. or coldaisle.probe")


class Watchdog:
    # The Pico W allows the least of the others, 8388 ms. An ESP8266's time is fixed, at
    # 1.6 to 3.2 s, and its constructor refuses another.
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
        # An ESP8266 comes with an open network of its own, MicroPython-xxxxxx.
        network.WLAN(network.AP_IF).active(False)
        self._wlan = network.WLAN(network.STA_IF)
        self._wlan.active(True)
        self._lost = time.ticks_ms()  # since when, None while joined
        self._tried = None

    # Joins the network when it was lost, and says whether it is there. Never waits.
    def joined(self):
        if self._wlan.isconnected():
            if self._lost is not None:
                print("wifi: joined", self._config.WIFI, "as", self.address())
            self._lost = self._tried = None
            return True
        now = time.ticks_ms()
        if self._lost is None:
            self._lost = now
        if time.ticks_diff(now, self._lost) > HOPELESS_MS:
            machine.reset()
        if self._tried is None or time.ticks_diff(now, self._tried) > RETRY_MS:
            self._tried = now
            print("wifi: joining", self._config.WIFI)
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
